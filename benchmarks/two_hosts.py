"""All-reduce and a training step on two hosts or more, simulated by network namespaces.

    python benchmarks/two_hosts.py [--hosts 2] [--ranks 4] [--rate 400] [--sizes ...] [--no-step]

Each host is a namespace; a token bucket (tc tbf) limits its link to a switch, a bridge in one more
namespace, in both directions. In each torchrun starts the ranks of one host. Needs root, `ip` and
`tc`. Namespaces, links and processes are removed at the end, also after a failure. The last line of
the output is JSON:

    {"hosts": 2, "ranks": 4, "rate_mbit": 400.0, "milliseconds": {BYTES: {ALGORITHM: median}},
     "step": {"tuned": images/s, "ddp": images/s},
     "exposed_ms": {"overlapped": median, "after_backward": median}, "tuning": [...], ...}
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fourmin.bench.allreduce import table_lines, with_bandwidths

SIZES = (16 << 10, 256 << 10, 4 << 20, 16 << 20)
BURST = 68 << 10
"""Bytes that the bucket lets pass at once: one segment of the largest size that TCP hands over,
64 KiB and a header for each of its 45 packets. A smaller bucket cuts it up, and the kernel then
works nine times as long for the same bytes."""
NETWORK = "10.203.74"
MOST_HOSTS = 26


class UnavailableError(Exception):
    """This machine cannot build the hosts."""


def run(*command: str) -> None:
    """Run a command of iproute2. Raises UnavailableError with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


@contextlib.contextmanager
def simulated_hosts(rate_mbit: float, count: int = 2) -> Iterator[tuple[str, ...]]:
    """The names of ``count`` namespaces, each with a link of ``rate_mbit`` Mbit/s in each direction
    to a switch that joins them; the first has the address ``NETWORK``.1, and so on.

    Raises UnavailableError where that is not permitted or tools are missing.
    """
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise UnavailableError(f"{tool} is missing (package iproute2)")
    hosts = tuple(f"fm{os.getpid()}{letter}" for letter in string.ascii_lowercase[:count])
    switch = f"fm{os.getpid()}switch"
    limit = ("root", "tbf", "rate", f"{rate_mbit}mbit", "burst", str(BURST), "latency", "100ms")
    made: list[str] = []
    try:
        for name in (switch, *hosts):
            run("ip", "netns", "add", name)
            made.append(name)
        run("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge0", "up")
        for number, host in enumerate(hosts, 1):
            # Made inside the host: nothing appears in the namespace of the machine.
            run("ip", "-n", host, "link", "add", "link0", "type", "veth", "peer", "name",
                f"port{number}", "netns", switch)  # fmt: skip
            run("ip", "-n", host, "addr", "add", f"{NETWORK}.{number}/24", "dev", "link0")
            run("ip", "-n", host, "link", "set", "lo", "up")
            run("ip", "-n", host, "link", "set", "link0", "up")
            run("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge0", "up")
            run("tc", "-n", host, "qdisc", "add", "dev", "link0", *limit)
            run("tc", "-n", switch, "qdisc", "add", "dev", f"port{number}", *limit)
        yield hosts
    finally:
        for name in made:
            kill_all(name)
            subprocess.run(("ip", "netns", "del", name), capture_output=True, check=False)


def kill_all(host: str) -> None:
    """Kill every process in a namespace of ours: torchrun's workers outlive torchrun."""
    listed = subprocess.run(
        ("ip", "netns", "pids", host), capture_output=True, text=True, check=False
    )
    for pid in listed.stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def torchrun(hosts: Sequence[str], ranks: int, arguments: Sequence[str], seconds: float) -> None:
    """Run ``arguments`` under torchrun with ``ranks`` workers on each host.

    Raises RuntimeError with the end of the output when a host fails or takes longer.
    """
    # Not of the machine's network: any number will do in fresh namespaces.
    port = "29400"
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / host for host in hosts]
        try:
            for node, (host, log) in enumerate(zip(hosts, logs, strict=True)):
                environment = {
                    **os.environ, "GLOO_SOCKET_IFNAME": "link0", "OMP_NUM_THREADS": "1",
                    "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": "",
                }  # fmt: skip
                command = [
                    "ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run",
                    f"--nnodes={len(hosts)}", f"--node-rank={node}", f"--nproc-per-node={ranks}",
                    f"--master-addr={NETWORK}.1", f"--master-port={port}", *arguments,
                ]  # fmt: skip
                with log.open("wb") as output:
                    processes.append(
                        subprocess.Popen(
                            command,
                            env=environment,
                            stdin=subprocess.DEVNULL,
                            stdout=output,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
            _wait(processes, seconds)
            failed = [i for i, each in enumerate(processes) if each.returncode]
            if failed:
                text = logs[failed[0]].read_text(errors="replace")[-4000:]
                raise RuntimeError(f"{hosts[failed[0]]} failed:\n{text}")
        finally:
            for host in hosts:
                kill_all(host)
            for each in processes:
                each.wait()


def _wait(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(each.poll() is None for each in processes):
        if any(each.poll() for each in processes):
            time.sleep(1.0)  # the other hosts say why as well
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"not done after {seconds:.0f} s")
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=2, choices=range(2, MOST_HOSTS + 1))
    parser.add_argument("--rate", type=float, default=400.0, help="Mbit/s in each direction")
    parser.add_argument("--ranks", type=int, default=4, help="ranks on each host")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes")
    parser.add_argument("--iterations", type=int, default=40, help="samples, at most")
    parser.add_argument("--seconds", type=float, default=35.0, help="for each size, twice")
    parser.add_argument("--blocks", type=int, default=24, help="of 5 training steps each")
    parser.add_argument("--no-step", action="store_true", help="leave the training step out")
    options = parser.parse_args()
    # So that the end of a run that is cut short removes everything as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = {
        "sizes": [int(size) for size in options.sizes.split(",")],
        "device": "cpu",
        "iterations": options.iterations,
        "seconds": options.seconds,
    }
    try:
        with (
            simulated_hosts(options.rate, options.hosts) as hosts,
            tempfile.TemporaryDirectory() as folder,
        ):
            result = {name: getattr(options, name) for name in ("hosts", "ranks")}
            result["rate_mbit"] = options.rate
            result |= measure(hosts, options.ranks, plan, Path(folder))
            if not options.no_step:
                # A step's buckets are between the measured sizes; the table knows what is near.
                step = {"tuning": result["tuning"], "blocks": options.blocks}
                script = str(Path(__file__).with_name("two_hosts_step.py"))
                result |= launch(hosts, options.ranks, [script], step, Path(folder))
    except UnavailableError as error:
        print(f"{options.hosts} hosts cannot be built here: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0


def measure(hosts: Sequence[str], ranks: int, plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The medians of every algorithm, printed as a table as well."""
    module = ["--module", "fourmin.training.comm.measure"]
    found = with_bandwidths(launch(hosts, ranks, module, plan, folder))
    print("\n".join(table_lines(found)), flush=True)
    times: dict[str, dict[str, float]] = {}
    for row in found["rows"]:
        times.setdefault(str(row["bytes"]), {})[row["algorithm"]] = round(row["milliseconds"], 3)
    return {
        "milliseconds": times,
        "tuning": found["tuning"],
        "hybrid_large": found["hybrid_large"],
        "hybrid_thresholds": found["hybrid_thresholds"],
    }


def launch(
    hosts: Sequence[str], ranks: int, program: Sequence[str], plan: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Run a program that reads its plan from one JSON file and writes its result to another."""
    plan_path, result_path = folder / "plan.json", folder / "result.json"
    plan_path.write_text(json.dumps(plan))
    torchrun(hosts, ranks, [*program, str(plan_path), str(result_path)], 1200)
    result: dict[str, Any] = json.loads(result_path.read_text())
    return result


if __name__ == "__main__":
    sys.exit(main())
