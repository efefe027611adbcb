"""The words that all text formats share: columns, and how a number reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from fourmin.base.text import how_many, printable
from fourmin.report.model import Comparison, Result
from fourmin.report.runs import ReportedRun
from fourmin.results.statistics import known_mean
from fourmin.rules.rule import SEVERITIES, WARNING, Finding
from fourmin.rules.verdict import NOT_JUDGED

NONE = "-"
NOT_SCALED = "not scaled"
FAILED = "failed campaigns: invalid, unfinished, abandoned, or without a result"
PENDING = "pending campaigns: registered and not closed yet, so that they do not count yet"
PRACTICE = "practice campaigns, which never count"
_MOST_CODES = 8


def duration(minutes: float | None) -> str:
    """Minutes with their unit, in seconds below a minute; `-` for none."""
    if minutes is None:
        return NONE
    return f"{minutes * 60:.2f} s" if abs(minutes) < 1 else f"{minutes:.3f} min"


def time(result: Result, minutes: float | None) -> str:
    """A time of a result; what others published has the digits that they published."""
    return duration(minutes) if result.verified or minutes is None else f"{minutes:g} min"


def accuracy(result: Result, share: float | None) -> str:
    """An accuracy of a result, in the same way."""
    return number(share, ".4f" if result.verified else "g")


def chip_minutes(result: Result) -> str:
    """Time times chips, with no more digits than the time can bear."""
    value = result.chip_minutes
    return number(value, ",.0f" if value is None or value >= 100 else ".3g")


def scaled(result: Result) -> str:
    """The time that results are ranked by, or that there was nothing to scale it by."""
    if result.minutes is None or result.scaled:
        return duration(result.scaled_minutes)
    return NOT_SCALED


def as_run(result: Result) -> str:
    """What stands beside the time that is compared: whether it was scaled, and the interval."""
    if result.minutes is None:
        return ""
    told = [f"{duration(result.minutes)} as run"] if result.scaled else [NOT_SCALED]
    if result.ci95 is not None:
        told.append(interval(result))
    return ", ".join(told)


def interval(result: Result) -> str:
    """The 95% interval of the mean time, where it says anything."""
    if result.ci95 is None:
        return NONE
    runs = sum(run.minutes is not None for run in result.runs)
    return no_interval(runs) if result.told_interval is None else between(*result.told_interval)


def no_interval(runs: int) -> str:
    """What stands instead of an interval that says nothing."""
    few = how_many(runs, "run")
    return f"{few}: no interval" if runs < 3 else f"{few} too far apart: no interval"


def detectable(result: Result) -> str:
    """The smallest difference to another result of as many runs that these can show."""
    return number(result.smallest_detectable, ".1%")


def between(low: float, high: float) -> str:
    """Two times in minutes, shortest first, with their unit."""
    if abs(high) < 1:
        return f"{low * 60:.2f} to {high * 60:.2f} s"
    return f"{low:.3f} to {high:.3f} min"


def run_times(result: Result) -> str:
    """Every run, in run order: its time, or how it ended; nobody knows those that are reported."""
    if not result.verified:
        return NONE
    return ", ".join(_run_time(run) for run in result.runs) or NONE


def _run_time(run: ReportedRun) -> str:
    return printable(run.facts.status) if run.minutes is None else duration(run.minutes)


def number(value: float | None, form: str) -> str:
    """A number in a format, or `-` for none."""
    return NONE if value is None else format(value, form)


def verdict(result: Result) -> str:
    """Whether the result is valid, and what was waived."""
    if not result.verified:
        return "reported, not verified here"
    codes = result.verdict.waivers
    return short_verdict(result) + (f", waived {' '.join(codes)}" if codes else "")


def short_verdict(result: Result) -> str:
    if not result.verified:
        return "not verified here"
    state = "" if result.state == "closed" else f"{result.state}, "
    if result.status == NOT_JUDGED:
        return result.verdict.words
    return state + (result.doubt or ("valid" if result.valid else "INVALID"))


def checks(result: Result) -> str:
    """What was waived, and how many findings there are of each severity."""
    codes = result.verdict.waivers
    waived = f"waived {' '.join(codes)}, " if codes else ""
    return waived + counts(result)


def not_checked(result: Result) -> str:
    """Each required check that could not be made, with the first reason."""
    told = result.verdict.reasons.items()
    return "; ".join(f"{code} {printable(text)}" for code, text in told) or NONE


def campaigns(result: Result) -> str:
    """How many campaigns of this system there are, at how many batches, and how they ended."""
    if not result.verified:
        return NONE
    of = result.standing
    parts = [f"{of.campaigns:,d}"]
    if of.batches > 1:
        parts[0] += f" at {of.batches:,d} batches"
        parts.append(f"{of.at_batch:,d} at this one")
    parts += [f"{of.failed:,d} failed"] if of.failed else []
    parts += [f"{of.pending:,d} pending"] if of.pending else []
    parts += [] if of.ranked else ["another batch is ranked"]
    return ", ".join(parts)


def evidence(result: Result) -> str:
    return ", ".join(map(printable, result.evidence if result.verified else ())) or NONE


def counts(result: Result) -> str:
    found = result.verdict.counts.items()
    return ", ".join(how_many(amount, severity, ",") for severity, amount in found if amount)


def epochs(result: Result) -> str:
    """Epochs of the runs that count, over those of the reference; the mean of all without one."""
    own, reference = result.convergence.epochs, result.convergence.reference
    if own is None or reference is None:
        return number(result.epochs_mean, ".1f")
    return f"{own:.1f}/{reference.mean:.1f}"


def reference_point(result: Result) -> str:
    """What the reference convergence point asks."""
    reference = result.convergence.reference
    if reference is None:
        return NONE
    return f"mean {reference.mean:.2f}, least {reference.minimum:.2f} epochs"


def scaling(result: Result) -> str:
    """Scaling efficiency, and what it is against."""
    if result.scaling_efficiency is None or result.baseline is None:
        return NONE
    chips = how_many(result.baseline.chips, "chip")
    return f"{result.scaling_efficiency:.1%} of {chips} in {printable(result.baseline.path)}"


def findings(result: Result) -> str:
    """How many of each severity, and their codes."""
    told = [_of_severity(result.verdict.findings, severity) for severity in SEVERITIES]
    return ", ".join(part for part in told if part) or ("none" if result.verified else NONE)


def warnings(result: Result) -> str:
    """What was warned of."""
    found = (f for f in result.verdict.findings if f.severity == WARNING)
    return "; ".join(f"{f.code} {printable(f.message)}" for f in found) or NONE


def _of_severity(all_findings: tuple[Finding, ...], severity: str) -> str:
    codes = [finding.code for finding in all_findings if finding.severity == severity]
    if not codes:
        return ""
    distinct = sorted(set(codes))
    shown = " ".join(distinct[:_MOST_CODES])
    more = " …" if len(distinct) > _MOST_CODES else ""
    return f"{how_many(len(codes), severity)} ({shown}{more})"


def energy(result: Result) -> str:
    """Energy to train with its method and scope; it is measured or not shown."""
    found = result.energy
    if found is None:
        return NONE
    amount, unit = (found.joules, "J") if found.joules < 1e5 else (found.joules / 3.6e6, "kWh")
    return f"{amount:,.3g} {unit} measured ({printable(found.method)}: {printable(found.scope)})"


def steady(result: Result) -> str:
    """The share of the clock at the steady rate, and what a run spent the rest on."""
    if result.steady_share is None:
        return NONE
    told = result.rest_seconds.items()
    rest = ", ".join(f"{name} {seconds(spent)}" for name, spent in told if round(spent, 2))
    return f"{result.steady_share:.1%} of the clock" + (f", the rest: {rest}" if rest else "")


def exposed(result: Result) -> str:
    """Exposed communication of a step, and its share of a step at the steady rate."""
    if result.exposed_ms is None:
        return NONE
    share = known_mean(run.exposed_share(result.global_batch_size) for run in result.runs)
    told = "" if share is None else f", {share:.1%} of a step at the steady rate"
    return f"{result.exposed_ms:.2f} ms{told}"


def seconds(value: float | None) -> str:
    """Seconds with their unit, or `-` for none."""
    return NONE if value is None else f"{value:.2f} s"


def cost(result: Result) -> str:
    """Cost to train, with the price that somebody stated."""
    price = result.price
    if price is None or result.cost is None:
        return NONE
    currency, source = printable(price.currency), printable(price.source)
    return (
        f"{result.cost:,.4g} {currency} at a stated {price.per_hour:,g} {currency} an hour "
        f"({source}, {price.date})"
    )


def title(result: Result) -> str:
    """What a table is about: results in different ones must not be compared."""
    division = f"{result.division} division" if result.verified else "reported, not verified here"
    target = result.quality_target
    parts = [division, "no common target" if target is None else f"target {target:g}"]
    if result.dataset:
        parts.append(result.dataset)
    parts.append(f"clock of {result.clock}" if result.verified else f"clock: {result.clock}")
    return ", ".join(printable(part) for part in (result.benchmark, *parts))


def tables(results: Iterable[Result]) -> Iterator[tuple[str, list[Result]]]:
    """The results that may be compared with each other: a title, and what belongs below it."""
    for _, group in groupby(results, key=lambda result: result.comparable):
        same = list(group)
        scales = any(result.scaled for result in same) or not same[0].verified
        yield title(same[0]) + ("" if scales else f", {NOT_SCALED}"), same


def apart(comparison: Comparison) -> Iterator[tuple[str, tuple[Result, ...]]]:
    """What stands below the tables: a heading and its campaigns, where there are any."""
    for heading, others in (
        (FAILED, comparison.failed),
        (PENDING, comparison.pending),
        (PRACTICE, comparison.practice),
    ):
        if others:
            yield heading, others


def one_line(result: Result) -> str:
    """A result outside of the tables, in one line."""
    told = warnings(result)
    return (
        f"{printable(result.path)}: {printable(result.benchmark)}, {result.state}, "
        f"{len(result.runs)} runs ({run_times(result)}), {verdict(result)}"
        + ("" if told == NONE else f"; warnings {told}")
    )
