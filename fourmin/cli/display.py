"""What a person, or a script, sees while a campaign runs.

Four displays of the same events: live on a terminal, plain lines elsewhere, JSON lines, and
none until the end. Progress goes to standard error, the closing table to standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fourmin.base.text import printable
from fourmin.cli.output import stderr, stdout
from fourmin.ledger.campaign import SUMMARY_FILE, Campaign, Slot
from fourmin.log import keys
from fourmin.log.records import Record
from fourmin.results.run_result import CONVERGED
from fourmin.rules.verdict import Report
from fourmin.ruleset import load_ruleset


def choose_display(*, as_json: bool, quiet: bool) -> Display:
    """The display for these options and this terminal."""
    if as_json:
        return JsonDisplay()
    if quiet:
        return Display()
    return LiveDisplay(stderr()) if sys.stderr.isatty() else PlainDisplay(stderr())


@dataclass
class Progress:
    """What is known of the run that is under way."""

    run: int
    attempt: int
    began: float = field(default_factory=time.monotonic)
    trained_since: float | None = None
    epoch: int = 0
    images_per_second: float | None = None
    accuracy: float | None = None
    phase: str = "starting workers"

    def take(self, record: Record) -> None:
        """Bring up to date with one more record of the event log."""
        epoch = record.metadata.get(keys.EPOCH_NUM)
        if record.key == keys.INIT_START:
            self.phase = "initializing"
        elif record.key == keys.RUN_START:
            self.phase, self.trained_since = "training", time.monotonic()
        elif record.key == keys.EPOCH_STOP and isinstance(epoch, int):
            self.epoch = epoch
        elif record.key == keys.TRACKED_STATS and isinstance(record.value, dict):
            rate = record.value.get("throughput")
            self.images_per_second = rate if isinstance(rate, float) else None
        elif record.key == keys.EVAL_ACCURACY and isinstance(record.value, (int, float)):
            self.accuracy = float(record.value)

    def restart(self, epoch: int) -> None:
        """The run goes on after `epoch`, in new workers."""
        self.epoch = epoch
        self.phase = "restarting"

    @property
    def elapsed(self) -> float:
        """Seconds since the run's intent."""
        return time.monotonic() - self.began

    def remaining(self, epochs: float) -> float | None:
        """Seconds to the end of epoch `epochs` at the pace so far; None before the first."""
        if self.trained_since is None or self.epoch == 0:
            return None
        pace = (time.monotonic() - self.trained_since) / self.epoch
        return max(0.0, pace * (epochs - self.epoch))


class Display:
    """Silent until the end; the base of the others."""

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def note(self, text: str) -> None:
        """Something that the user should know beside the runs."""

    def campaign_opened(self, campaign: Campaign) -> None:
        """The campaign is registered, or goes on."""
        self._campaign = campaign
        self._runs = int(campaign.plan["runs"])
        benchmark = load_ruleset(campaign.plan["ruleset"]).benchmark(campaign.benchmark)
        self._target = benchmark.quality_target
        self._results: dict[int, Mapping[str, Any]] = {}
        self._progress: Progress | None = None

    def run_starting(self, slot: Slot, attempt: int) -> None:
        """The workers of a run are about to be started."""
        self._progress = Progress(slot.run, attempt)

    def run_restarting(self, slot: Slot, restart: int, epoch: int, why: str) -> None:
        """The run was cut off and goes on after `epoch`, its clock running."""
        if self._progress is not None:
            self._progress.restart(epoch)

    def record(self, slot: Slot, record: Record) -> None:
        """The event log has one more record."""
        if self._progress is not None:
            self._progress.take(record)

    def run_finished(self, slot: Slot, result: Mapping[str, Any]) -> None:
        """The run's result is on disk."""
        self._results[slot.run] = result
        self._progress = None

    def closed(self, folder: Path, summary: Mapping[str, Any], report: Report) -> None:
        """The campaign is closed and was checked: print the table and where everything is."""
        console = stdout()
        console.print(_closing_table(summary, self._target))
        console.print(_closing_line(summary, self._campaign.practice))
        console.print(f"written to {folder}  ({SUMMARY_FILE}, ledger.jsonl, run-<i>/)")
        errors = sum(finding.severity == "error" for finding in report.findings)
        verdict = "valid" if report.ok else f"NOT VALID ({errors} errors)"
        console.print(f"checked: {verdict}; again with: fourmin validate {folder}")

    def _expected_epochs(self) -> float:
        """How many epochs a run takes: as many as those before it, else the whole schedule."""
        epochs = [r["epochs"] for r in self._results.values() if r["epochs"]]
        return max(epochs) if epochs else self._campaign.configuration.max_epochs

    def _describe_result(self, result: Mapping[str, Any]) -> str:
        seconds = (result["minutes"] or 0) * 60
        text = f"run {result['run']}/{self._runs}  {result['status']}"
        if result["quality"] is not None:
            text += f"  accuracy {result['quality']:.4f} after epoch {result['epochs']:g}"
        if result["minutes"] is not None:
            text += f"  time to train {seconds:.2f} s"
        return f"{text}  {printable(result['failure'])}" if result["failure"] else text

    def _headline(self) -> str:
        plan, config = self._campaign.plan, self._campaign.configuration
        kind = "practice " if self._campaign.practice else ""
        return (
            f"{kind}campaign {self._campaign.folder.name}: {plan['runs']} runs of {config.preset}, "
            f"{config.workers} workers on {config.device}, {config.precision}, "
            f"global batch {config.global_batch_size}, target {self._target:g}"
        )


class PlainDisplay(Display):
    """One line for each thing that happened."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def note(self, text: str) -> None:
        """Say it."""
        self._console.print(printable(text, 2000))

    def campaign_opened(self, campaign: Campaign) -> None:
        """Say what starts."""
        super().campaign_opened(campaign)
        self._console.print(self._headline())

    def run_starting(self, slot: Slot, attempt: int) -> None:
        """Say which run starts, with which seed."""
        super().run_starting(slot, attempt)
        again = f"  attempt {attempt}" if attempt > 1 else ""
        self._console.print(f"run {slot.run}/{self._runs}  seed {slot.seed}{again}")

    def run_restarting(self, slot: Slot, restart: int, epoch: int, why: str) -> None:
        """Say what happened, and from where the run goes on."""
        super().run_restarting(slot, restart, epoch, why)
        self._console.print(f"run {slot.run}/{self._runs}  {_restarting(restart, epoch, why)}")

    def record(self, slot: Slot, record: Record) -> None:
        """Say what an evaluation gave."""
        super().record(slot, record)
        progress = self._progress
        if record.key != keys.EVAL_ACCURACY or progress is None:
            return
        rate = f"  {progress.images_per_second:,.0f} images/s" if progress.images_per_second else ""
        remaining = progress.remaining(self._expected_epochs())
        estimate = f"  about {remaining:.0f} s left" if remaining else ""
        self._console.print(
            f"run {slot.run}/{self._runs}  epoch {progress.epoch}"
            f"  accuracy {progress.accuracy:.4f} (target {self._target:g}){rate}"
            f"  {progress.elapsed:.1f} s{estimate}"
        )

    def run_finished(self, slot: Slot, result: Mapping[str, Any]) -> None:
        """Say how the run ended."""
        super().run_finished(slot, result)
        self._console.print(self._describe_result(result))


class LiveDisplay(Display):
    """A live view on a terminal: finished runs above, the one under way below."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._opened = False
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=8, transient=False
        )

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Say it, above the view."""
        self._console.print(printable(text, 2000))

    def campaign_opened(self, campaign: Campaign) -> None:
        """Say what starts."""
        super().campaign_opened(campaign)
        self._opened = True

    def run_restarting(self, slot: Slot, restart: int, epoch: int, why: str) -> None:
        """Say, above the view, what happened and from where the run goes on."""
        super().run_restarting(slot, restart, epoch, why)
        self._console.print(f"run {slot.run}/{self._runs}  {_restarting(restart, epoch, why)}")

    def _render(self) -> RenderableType:
        if not self._opened:
            return Text("")
        lines: list[RenderableType] = [Text(self._headline(), style="bold")]
        for _, result in sorted(self._results.items()):
            good = result["status"] == CONVERGED
            lines.append(Text(self._describe_result(result), style="green" if good else "red"))
        if self._progress is not None:
            lines.append(self._running(self._progress))
        return Group(*lines)

    def _running(self, progress: Progress) -> RenderableType:
        epochs = self._campaign.configuration.max_epochs
        expected = self._expected_epochs()
        remaining = progress.remaining(expected)
        row = Table.grid(padding=(0, 2))
        rate = f"{progress.images_per_second:,.0f} images/s" if progress.images_per_second else ""
        accuracy = "-" if progress.accuracy is None else f"{progress.accuracy:.4f}"
        row.add_row(
            f"run {progress.run}/{self._runs}",
            _bar(progress.epoch / expected),
            f"epoch {progress.epoch}/{epochs}" if progress.epoch else progress.phase,
            rate,
            f"accuracy {accuracy} (target {self._target:g})",
            f"{progress.elapsed:.1f} s",
            "" if remaining is None else f"about {remaining:.0f} s left",
        )
        return row


class JsonDisplay(Display):
    """One JSON object a line on standard output, and the result in the last one."""

    def note(self, text: str) -> None:
        """The text."""
        self._say("note", text=text)

    def campaign_opened(self, campaign: Campaign) -> None:
        """The campaign's path and plan."""
        super().campaign_opened(campaign)
        self._say("campaign-opened", campaign=str(campaign.folder), runs=self._runs)

    def run_starting(self, slot: Slot, attempt: int) -> None:
        """Run, attempt and seed."""
        super().run_starting(slot, attempt)
        self._say("run-starting", run=slot.run, attempt=attempt, seed=slot.seed)

    def run_restarting(self, slot: Slot, restart: int, epoch: int, why: str) -> None:
        """What happened, and from where the run goes on."""
        super().run_restarting(slot, restart, epoch, why)
        self._say("run-restarting", run=slot.run, restart=restart, epoch=epoch, why=why)

    def record(self, slot: Slot, record: Record) -> None:
        """The record as logged."""
        super().record(slot, record)
        self._say(
            "record",
            run=slot.run,
            key=record.key,
            value=record.value,
            time_ms=record.time_ms,
            event_type=record.event_type,
            metadata=record.metadata,
        )

    def run_finished(self, slot: Slot, result: Mapping[str, Any]) -> None:
        """The outcome in short."""
        super().run_finished(slot, result)
        names = ("run", "status", "minutes", "epochs", "quality", "failure")
        self._say("run-finished", **{name: result[name] for name in names})

    def closed(self, folder: Path, summary: Mapping[str, Any], report: Report) -> None:
        """The closing object, which scripts rely on."""
        closing = {"campaign": str(folder), "minutes": summary["minutes"], "valid": report.ok}
        print(json.dumps(closing), flush=True)  # noqa: T201 - this is the output

    @staticmethod
    def _say(event: str, **data: Any) -> None:
        print(json.dumps({"event": event, **data}), flush=True)  # noqa: T201 - this is the output


def _restarting(restart: int, epoch: int, why: str) -> str:
    where = f"the checkpoint after epoch {epoch}" if epoch else "the start of training"
    return f"{printable(why)}; restart {restart}, from {where}, with the clock running"


def _bar(share: float, width: int = 16) -> str:
    full = min(width, round(share * width))
    return "━" * full + "╌" * (width - full)


def _closing_table(summary: Mapping[str, Any], target: float) -> Table:
    table = Table(title=f"{summary['benchmark']}, target {target:g}", title_justify="left")
    for name in ("run", "seed", "status", "accuracy", "epochs", "time to train"):
        table.add_column(name, justify="left" if name == "status" else "right")
    for run in summary["runs"]:
        minutes = run["minutes"]
        table.add_row(
            str(run["run"]),
            str(run["seed"]),
            run["status"],
            "-" if run["quality"] is None else f"{run['quality']:.4f}",
            "-" if run["epochs"] is None else f"{run['epochs']:g}",
            "-" if minutes is None else f"{minutes * 60:.2f} s",
        )
    return table


def _closing_line(summary: Mapping[str, Any], practice: bool) -> str:
    if summary["minutes"] is None:
        return "no benchmark result: more than one run did not reach the target"
    low_high = ""
    if summary["ci95"]:
        low, high = (60 * bound for bound in summary["ci95"])
        low_high = f", 95% interval {low:.2f} to {high:.2f} s"
    spread = f", CV {summary['cv']:.1%}" if summary["cv"] is not None else ""
    kind = "practice, which never counts" if practice else "benchmark result"
    return (
        f"{kind}: {summary['minutes'] * 60:.2f} s = {summary['minutes']:.4f} min"
        f"{low_high}{spread}, {summary['images_per_second']:,.0f} images/s"
    )
