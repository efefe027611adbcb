"""Faults put into real commands, by a seed: what surrounds a command fails, or a signal ends it.

After each fault the five things are looked at that no mishap may break: no traceback, a documented
exit code, no process left, nothing in TMPDIR, and ledgers that are whole.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError
from fourmin.ledger.campaign import Campaign

DOCUMENTED = {0, 2, 3, 130}
"""Exit codes of commands in which nothing is found: 1 would say that something is."""
MARK = "FOURMIN_OF_THIS_FAULT"
SHORT = ["--practice", "--runs", "1", "--max-steps", "4", "--set", "device=cpu"]
LEFT_SECONDS = 5.0
"""How long processes may take to end once the command has."""
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Root reads and writes what it likes; so it is an owner as any other."""


@dataclass
class Place:
    """Where one command runs: its folders, its variables, and what is done to it."""

    root: Path
    campaign: Path
    """A finished campaign, to be read."""
    variables: dict[str, str | None] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    """What starts the command: a wrapper with its arguments."""
    limits: dict[int, int] = field(default_factory=dict)
    streams: dict[str, Any] = field(default_factory=dict)
    closed: tuple[int, ...] = ()
    mounts: list[Path] = field(default_factory=list)

    def __getattr__(self, name: str) -> Path:
        """One of its folders."""
        if name not in ("tmp", "state", "cache", "results", "trees", "home"):
            raise AttributeError(name)
        return self.root / name

    def environment(self) -> dict[str, str]:
        own = {
            **os.environ,
            "TMPDIR": str(self.tmp),
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.state),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(self.cache)),
            MARK: str(self.root),
        }
        changed: Mapping[str, str | None] = {**own, **self.variables}
        return {name: value for name, value in changed.items() if value is not None}


COMMANDS: dict[str, Callable[[Place], list[str]]] = {
    "validate": lambda p: ["validate", str(p.trees)],
    "validate json": lambda p: ["validate", "--format", "json", str(p.trees)],
    "report": lambda p: ["report", str(p.trees)],
    "report to a file": lambda p: ["report", str(p.trees), "--output", str(p.results / "r.md"),
                                   "--format", "markdown"],
    "rules": lambda p: ["rules"],
    "presets": lambda p: ["presets", "digits"],
    "estimate": lambda p: ["estimate", "--preset", "resnet50-64k", "--nodes", "16"],
    "abandon": lambda p: ["abandon", str(p.root / "open")],
    "submit": lambda p: ["submit", str(p.campaign), "--into", str(p.results / "submissions")],
    "register": lambda p: ["register", "--preset", "digits", "--submitter", "lab", "--into",
                           str(p.results / "submissions")],
    "dry run": lambda p: ["run", "--dry-run", *SHORT, "--results-dir", str(p.results)],
    "data check": lambda p: ["data", "check", str(p.root / "images")],
    "data prepare": lambda p: ["data", "prepare", str(p.root / "images"),
                               str(p.results / "shards")],
    "doctor": lambda p: ["doctor", "--results-dir", str(p.results)],
    "run": lambda p: ["run", *SHORT, "--results-dir", str(p.results)],
}  # fmt: skip
SLOW = ("doctor", "run")


def full_disk(place: Place, chance: random.Random) -> str:
    """A small file system where something is written; without rights to mount, small files."""
    size = chance.choice([4, 16, 28, 64, 200, 1000])
    which = chance.choice(["tmp", "state", "results"])
    target = place.root / which
    kept = [*target.iterdir()]
    mounted = os.geteuid() == 0 and not kept and _mount(target, size)
    if mounted:
        place.mounts.append(target)
        return f"{which} of {size} KiB"
    place.limits[resource.RLIMIT_FSIZE] = size * 256
    return f"files of {size * 256} bytes at most"


def locked_folder(place: Place, chance: random.Random) -> str:
    which = chance.choice(["tmp", "state", "results"])
    (place.root / which).chmod(0o500)
    place.before = WITHOUT_RIGHTS
    return f"{which} cannot be written"


def locked_input(place: Place, chance: random.Random) -> str:
    inside = [place.trees, *place.trees.rglob("*"), *(place.root / "images").rglob("*")]
    hidden = chance.choice(sorted(inside))
    hidden.chmod(0)
    place.before = WITHOUT_RIGHTS
    return f"{hidden.relative_to(place.root)} cannot be read"


def lost_output(place: Place, chance: random.Random) -> str:
    name = chance.choice(["stdout", "stderr"])
    how = chance.choice(["closed", "full", "gone"])
    if how == "closed":
        place.closed = (1 if name == "stdout" else 2,)
    elif how == "full":
        place.streams[name] = open("/dev/full", "w")  # noqa: SIM115 - closed with the place
    else:
        reader, writer = os.pipe()
        os.close(reader)
        place.streams[name] = os.fdopen(writer, "w")
    return f"{name} {how}"


def no_home(place: Place, chance: random.Random) -> str:
    place.variables |= dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"))
    if chance.random() < 0.5:
        place.variables["HOME"] = "/nonexistent"
    return "no home"


def few_files(place: Place, chance: random.Random) -> str:
    place.limits[resource.RLIMIT_NOFILE] = most = chance.randint(14, 40)
    return f"at most {most} open files"


def little_memory(place: Place, chance: random.Random) -> str:
    place.limits[resource.RLIMIT_AS] = most = chance.choice([150, 200, 300]) << 20
    return f"{most >> 20} MiB of memory"


def other_locale(place: Place, chance: random.Random) -> str:
    kept = dict.fromkeys(("LANG", "PYTHONIOENCODING"))
    name = chance.choice(["ascii", "latin-1", "cp1252"])
    if chance.random() < 0.5:
        kept |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    else:
        kept["PYTHONIOENCODING"] = name
    place.variables |= kept
    return f"locale {kept}"


def long_tmpdir(place: Place, chance: random.Random) -> str:
    place.variables["TMPDIR"] = str(place.tmp / ("x" * chance.choice([90, 250])))
    return "a TMPDIR that is not there, with a long name"


def small_shared_memory(place: Place, chance: random.Random) -> str:
    size = chance.choice([4, 16, 64])
    mount = f"ip link set lo up && mount -t tmpfs -o size={size}k tmpfs /dev/shm"
    return f"{size} KiB of shared memory" if _apart(place, mount) else no_home(place, chance)


def only_ipv6(place: Place, chance: random.Random) -> str:
    hosts = place.root / "hosts"
    hosts.write_text(f"::1 localhost {socket.gethostname()}\n" * chance.choice([0, 1]))
    found = "this host's name unknown" if not hosts.stat().st_size else "its name known"
    setup = (
        f"mount --bind {hosts} /etc/hosts && ip link set lo up && ip addr del 127.0.0.1/8 dev lo"
    )
    return f"IPv6 alone, {found}" if _apart(place, setup) else no_home(place, chance)


def _apart(place: Place, setup: str) -> bool:
    """Whether the command can begin with `setup` in namespaces of its own, which takes root."""
    place.before = ["unshare", "--net", "--mount", "sh", "-c", f'{setup} && exec "$@"', "sh"]
    tried = subprocess.run([*place.before, "true"], capture_output=True, check=False)
    if tried.returncode:
        place.before = []
    return not tried.returncode


SURROUNDINGS = (
    full_disk, locked_folder, locked_input, lost_output, no_home, few_files, little_memory,
    other_locale, long_tmpdir, small_shared_memory, only_ipv6,
)  # fmt: skip
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGPIPE", "SIGXCPU")


@dataclass(frozen=True)
class Injected:
    """One fault, and what it broke of the five."""

    words: str
    code: int
    output: str
    broken: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.words}: {', '.join(self.broken)}\nexit code {self.code}\n{self.output}"


def inject(seed: int, template: Path, command: str, fault: str, root: Path) -> Injected:
    """Run a command with a fault of this kind (`signal`, or a surrounding's name) and look."""
    chance = random.Random(seed)
    shutil.copytree(template, root, symlinks=True)
    place = Place(root, root / "trees" / "done")
    words, signal_name = fault, ""
    if fault == "signal":
        signal_name = chance.choice(SIGNALS)
    else:
        kind = next(one for one in SURROUNDINGS if one.__name__ == fault)
        words = kind(place, chance)
    arguments = COMMANDS[command](place)
    with tempfile.TemporaryFile("w+") as said:
        streams = {"stdout": said, "stderr": said, **place.streams}
        process = subprocess.Popen(
            [*place.before, sys.executable, "-m", "fourmin", *arguments],
            stdin=subprocess.DEVNULL,
            env=place.environment(),
            cwd=place.root,
            preexec_fn=lambda: _arrange(place),
            start_new_session=True,
            **streams,
        )
        if signal_name:
            delay = chance.random() * (12.0 if command in SLOW else 1.5)
            words = f"{signal_name} after {delay:.2f} s"
            try:
                process.wait(delay)
            except subprocess.TimeoutExpired:
                process.send_signal(getattr(signal, signal_name))
        try:
            code = process.wait(240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            said.write("it never ended")
        left = _processes_of(place, LEFT_SECONDS)
        said.seek(0)
        output = said.read()
    for stream in place.streams.values():
        stream.close()
    broken = tuple(_broken(place, code, output, left, signal_name))
    for folder in place.mounts:
        subprocess.run(["umount", folder], check=True)
    shutil.rmtree(root, ignore_errors=True)
    return Injected(f"{command}, {words} (seed {seed})", code, output[-3000:], broken)


def _broken(place: Place, code: int, output: str, left: list[str], by: str) -> list[str]:
    """What of the five does not hold."""
    found = []
    if "Traceback" in output or "Exception ignored" in output:
        found.append("a traceback")
    # A signal in the first milliseconds, before Python runs this project's code, or SIGKILL.
    by_signal = -getattr(signal, by) if by else None
    if code not in DOCUMENTED and code != by_signal:
        found.append(f"exit code {code}")
    heard = 2 not in place.closed and "stderr" not in place.streams
    heard &= resource.RLIMIT_FSIZE not in place.limits  # which what it says falls under
    if heard and code not in (0, by_signal) and "error: " not in output.lower():
        found.append("no word of what happened")
    if left:
        found.append(f"left processes: {left}")
    names = sorted(one.name for one in place.tmp.iterdir())
    if names:
        found.append(f"in TMPDIR: {names}")
    for plan in [*place.results.glob("*/campaign.json"), place.root / "open" / "campaign.json"]:
        try:
            Campaign.reopen(plan.parent)
        except (FourminError, OSError) as error:
            if getattr(error, "errno", None) != errno.ENOSPC:
                found.append(f"the ledger of {plan.parent.name}: {error}")
    return found


def _arrange(place: Place) -> None:
    for number in (signal.SIGINT, signal.SIGQUIT):  # a shell's background jobs ignore them
        signal.signal(number, signal.SIG_DFL)
    for limit, most in place.limits.items():
        resource.setrlimit(limit, (most, most))
    for descriptor in place.closed:
        os.close(descriptor)


def _processes_of(place: Place, seconds: float) -> list[str]:
    """Command lines of processes that still live after `seconds`, by their environment's mark."""
    mark = f"{MARK}={place.root}".encode()
    deadline = time.monotonic() + seconds
    while True:
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (one / "environ").read_bytes().split(b"\0"):
                    found.append((one / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
            except OSError:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _mount(folder: Path, kibibytes: int) -> bool:
    """Whether a file system of this size lies at `folder` now."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
