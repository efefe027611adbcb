"""What a person, or a script, sees while a campaign runs.

Four displays of the same events: live on a terminal, plain lines elsewhere, JSON lines, and
none until the end. Progress goes to standard error, the closing table to standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fourmin.base.text import command, folded, how_many, printable
from fourmin.campaign.events import (
    CampaignClosed,
    CampaignOpened,
    Event,
    Note,
    RecordLogged,
    RunFinished,
    RunRestarting,
    RunStarting,
)
from fourmin.campaign.standing import RunUnderWay, Standing
from fourmin.cli.output import print_json, say, stderr, stdout
from fourmin.ledger.campaign import SUMMARY_FILE
from fourmin.log import keys
from fourmin.report.wording import no_interval
from fourmin.results.power import smallest_detectable
from fourmin.results.run_result import CONVERGED, RunFacts
from fourmin.results.statistics import says_something

LONGEST_LINE = 2000


def choose_display(*, as_json: bool, quiet: bool) -> Display:
    if as_json:
        return JsonDisplay()
    if quiet:
        return Display()
    return LiveDisplay() if sys.stderr.isatty() else PlainDisplay()


class Display:
    """Silent until the end; the base of the others, which show what happens on a console."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or stderr()
        self._standing = Standing(clock)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, text: str) -> None:
        """Tell the user what stands beside the runs."""
        self.take(Note(text))

    def take(self, event: Event) -> None:
        self._standing.take(event)
        if isinstance(event, CampaignClosed):
            _print_closing(event, self._standing.campaign)


class PlainDisplay(Display):
    """One line for each thing that happened."""

    def take(self, event: Event) -> None:
        super().take(event)
        text = _line(event, self._standing)
        if text is not None:
            self._console.print(text)


class LiveDisplay(Display):
    """A live view on a terminal: finished runs above, the one under way below."""

    def __enter__(self) -> Display:
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=8)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        """Bring the view up to date, and say above it what it does not keep."""
        super().take(event)
        if isinstance(event, (Note, RunRestarting)):
            self._console.print(folded(_line(event, self._standing) or "", self._console.width))

    def _render(self) -> RenderableType:
        standing = self._standing
        if standing.campaign is None:
            return Text("")
        width = self._console.width
        headline = folded(_headline(standing.campaign), width, 2)
        lines: list[RenderableType] = [Text(headline, style="bold")]
        for _, result in sorted(standing.finished.items()):
            style = "green" if result.status == CONVERGED else "red"
            lines.append(Text(folded(_line(result, standing) or "", width, 2), style=style))
        if standing.under_way is not None:
            lines.append(self._running(standing.under_way, standing.campaign))
        return Group(*lines)

    def _running(self, run: RunUnderWay, campaign: CampaignOpened) -> RenderableType:
        """One line; where it does not fit, what matters least is left out."""
        standing, epochs = self._standing, self._standing.expected_epochs
        accuracy = "-" if run.accuracy is None else f"{run.accuracy:.4f}"
        left = standing.seconds_left
        parts = {
            "run": _run(run.run, standing),
            "bar": _bar(run.epoch, epochs),
            "epoch": f"epoch {run.epoch}/{epochs:g}" if run.epoch else run.phase,
            "rate": f"{run.images_per_second:,.0f} images/s" if run.images_per_second else "",
            "accuracy": f"accuracy {accuracy}",
            "target": f"(target {campaign.quality_target:g})",
            "elapsed": f"{standing.elapsed:.1f} s",
            "left": "" if left is None else f"about {left:.0f} s left",
        }
        for least in ("", "rate", "target", "elapsed", "bar", "left", "accuracy"):
            parts.pop(least, None)
            line = "  ".join(filter(None, parts.values())).replace("  (target", " (target")
            if len(line) < self._console.width:
                break
        return Text(line, no_wrap=True, overflow="ellipsis")


class JsonDisplay(Display):
    """One JSON object a line on standard output, and the result in the last one."""

    def take(self, event: Event) -> None:
        print_json("event", event.to_json(), indent=None)


def _line(event: Event, standing: Standing) -> str | None:
    """An event in one line, None where there is nothing to say of it."""
    text = _words(event, standing)
    return None if text is None else printable(text, LONGEST_LINE)


def _words(event: Event, standing: Standing) -> str | None:
    if isinstance(event, Note):
        return event.text
    if isinstance(event, CampaignOpened):
        return _headline(event)
    if isinstance(event, CampaignClosed):
        return None
    if isinstance(event, RecordLogged):
        words = _evaluation(standing) if event.key == keys.EVAL_ACCURACY else None
    elif isinstance(event, RunStarting):
        words = f"seed {event.seed}" + (f"  attempt {event.attempt}" if event.attempt > 1 else "")
    elif isinstance(event, RunRestarting):
        epoch = event.epoch
        where = f"the checkpoint after epoch {epoch}" if epoch else "the start of training"
        words = f"{event.why}; restart {event.restart}, from {where}, with the clock running"
    else:
        words = _outcome(event)
    return None if words is None else f"{_run(event.run, standing)}  {words}"


def _run(number: int, standing: Standing) -> str:
    return f"run {number}/{standing.campaign.runs}" if standing.campaign else f"run {number}"


def _headline(campaign: CampaignOpened) -> str:
    kind = "practice " if campaign.practice else ""
    return (
        f"{kind}campaign {Path(campaign.campaign).name}: {how_many(campaign.runs, 'run')} of "
        f"{campaign.preset}, "
        f"{campaign.workers} workers on {campaign.device}, "
        f"{campaign.precision}, global batch {campaign.global_batch_size}, "
        f"target {campaign.quality_target:g}"
    )


def _evaluation(standing: Standing) -> str | None:
    run, campaign = standing.under_way, standing.campaign
    if run is None or run.accuracy is None or campaign is None:
        return None
    rate = f"  {run.images_per_second:,.0f} images/s" if run.images_per_second else ""
    left = f"  about {standing.seconds_left:.0f} s left" if standing.seconds_left else ""
    return (
        f"epoch {run.epoch}  accuracy {run.accuracy:.4f} (target {campaign.quality_target:g})"
        f"{rate}  {standing.elapsed:.1f} s{left}"
    )


def _outcome(result: RunFinished) -> str:
    text = result.status
    if result.quality is not None and result.epochs is not None:
        text += f"  accuracy {result.quality:.4f} after epoch {result.epochs:g}"
    if result.minutes is not None:
        text += f"  time to train {result.minutes * 60:.2f} s"
    if result.started_in_seconds is not None:
        text += f"  started in {result.started_in_seconds:.1f} s"
    return f"{text}  {result.failure}" if result.failure else text


def _bar(done: int, total: float, width: int = 16) -> str:
    full = min(width, round(done / max(total, 1) * width))
    return "━" * full + "╌" * (width - full)


def _print_closing(closed: CampaignClosed, opened: CampaignOpened | None) -> None:
    """The table of runs, the result, and where everything is."""
    summary, console = closed.summary, stdout()
    target = f", target {opened.quality_target:g}" if opened else ""
    table = Table(title=f"{summary['benchmark']}{target}", title_justify="left")
    for name in ("run", "seed", "status", "accuracy", "epochs", "time to train"):
        table.add_column(name, justify="left" if name == "status" else "right")
    for run in summary["runs"]:
        table.add_row(
            str(run["run"]),
            str(run["seed"]),
            run["status"],
            "-" if run["quality"] is None else f"{run['quality']:.4f}",
            "-" if run["epochs"] is None else f"{run['epochs']:g}",
            "-" if run["minutes"] is None else f"{run['minutes'] * 60:.2f} s",
        )
    console.print(table)
    errors = f" ({how_many(closed.errors, 'error')})" if closed.errors else ""
    again = command("validate", closed.campaign)
    lines = [_result(closed)]
    lines += [f"written to {closed.campaign}  ({SUMMARY_FILE}, ledger.jsonl, run-<i>/)"]
    lines += [f"checked: {closed.verdict}{errors}; again with: {again}"]
    lines += [f"warning: {text}" for text in closed.warnings or ()]
    say(lines)


def _result(closed: CampaignClosed) -> str:
    """The benchmark result, or why there is none."""
    summary, practice = closed.summary, bool(closed.summary["practice"])
    if closed.minutes is None:
        runs = summary["runs"]
        ended = [RunFacts(status=run["status"], minutes=run["minutes"]) for run in runs]
        missed = sum(run.counted_minutes(practice) is None for run in ended)
        which = "the only run" if len(runs) == 1 else f"{missed} of {len(runs)} runs"
        return f"no benchmark result: {which} did not " + (
            "end of itself" if practice else "reach the target"
        )
    low_high = ""
    if summary["ci95"]:
        counted = sum(run["minutes"] is not None for run in summary["runs"])
        low, high = (60 * bound for bound in summary["ci95"])
        tells = says_something((low, high), counted)
        said = f"95% interval {low:.2f} to {high:.2f} s" if tells else no_interval(counted)
        low_high = f", {said}"
        share = smallest_detectable([run["minutes"] for run in summary["runs"]])
        low_high += "" if share is None else f", tells differences from {share:.0%}"
    spread = f", CV {summary['cv']:.1%}" if summary["cv"] is not None else ""
    kind = "practice, which never counts" if practice else "benchmark result"
    return (
        f"{kind}: {closed.minutes * 60:.2f} s = {closed.minutes:.4f} min"
        f"{low_high}{spread}, {summary['images_per_second']:,.0f} images/s"
    )
