"""What the importers make of somebody else's files: runs and run sets in this project's model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fourmin.base.canonical import JSON
from fourmin.base.text import how_many
from fourmin.base.values import number
from fourmin.log import keys
from fourmin.log.intervals import Interval
from fourmin.log.reader import EventLog
from fourmin.log.timeline import Evaluation, Timeline
from fourmin.results.importers.files import read_json
from fourmin.results.importers.rounds import Round, round_of_log
from fourmin.results.rcp import Convergence, mean_epochs, references
from fourmin.results.run_result import ABORTED, CONVERGED, NOT_CONVERGED, RunFacts
from fourmin.results.scoring import Score, score
from fourmin.results.statistics import known_mean
from fourmin.ruleset import CURRENT

MLPERF = "mlperf"
DAWNBENCH = "dawnbench"
BENCHMARK = "resnet50"
"""This project's name of the benchmark that MLPerf calls `resnet`."""
MLPERF_BENCHMARK = "resnet"
TRAIN_SAMPLES = 1_281_167
EVAL_SAMPLES = 50_000
_MOST_CHIPS = 10**9
_WHOLE = re.compile(r"\s*[0-9]{1,9}(?:\.0*)?\s*\Z", re.ASCII)


class ForeignRun:
    """One run of another benchmark: its log as a timeline, and what follows from it.

    `path` is how findings name the log. `round` is MLPerf's, or what DAWNBench asks for.
    """

    def __init__(
        self, source: str, path: str, log: EventLog, of_round: Round | None = None
    ) -> None:
        self.source = source
        self.path = path
        self.log = log
        self.timeline = Timeline(log)
        self.round = of_round or round_of_log(self.timeline)

    @cached_property
    def benchmark(self) -> str:
        """The benchmark as MLPerf names it; `resnet` where a log of v0.5 says so."""
        named = self.timeline.value(keys.SUBMISSION_BENCHMARK)
        if named is None and self.log.records:
            named = self.log.records[0].metadata.get("benchmark")
        return "" if named is None else str(named)

    @cached_property
    def unjudged(self) -> str:
        """Why there is nothing to judge in it, in two or three words; empty where there is."""
        if not self.log.records:
            return "without a record"
        if self.source == DAWNBENCH:
            return "" if self.timeline.evaluations else "without a row"
        if self.benchmark not in ("", MLPERF_BENCHMARK):
            return f"of {self.benchmark[:40]}"
        if self.crossing is not None:
            return ""
        if not self.timeline.count(keys.RUN_STOP):
            return "cut off"
        return "aborted" if self.timeline.status == keys.ABORTED else ""

    @property
    def submitter(self) -> str:
        """The organisation in the log; empty where it names none."""
        value = self.timeline.value(keys.SUBMISSION_ORG)
        return value if isinstance(value, str) else ""

    @cached_property
    def division(self) -> str:
        """The division in the log; `closed` where it names none, as v0.5 never did."""
        value = self.timeline.value(keys.SUBMISSION_DIVISION)
        return value if isinstance(value, str) and value else "closed"

    @property
    def closed(self) -> bool:
        """Whether the closed division's limits apply."""
        return self.source == MLPERF and self.division != "open"

    @property
    def target(self) -> float:
        """The accuracy to reach, as a fraction."""
        return self.round.quality_target

    @cached_property
    def crossing(self) -> Evaluation | None:
        """The first evaluation that reached the target."""
        return self.timeline.first_reaching(self.target)

    @cached_property
    def facts(self) -> RunFacts:
        """What the log says, under the names of result.json."""
        stop = self.timeline.last(keys.RUN_STOP)
        evaluations = self.timeline.evaluations
        if stop is not None:
            evaluations = tuple(e for e in evaluations if e.line <= stop.line) or evaluations
        return RunFacts.common(
            self.timeline,
            status=self._status,
            epochs=evaluations[-1].epoch if evaluations else None,
            quality=evaluations[-1].accuracy if evaluations else None,
            images_per_second=self._images_per_second,
        )

    @property
    def _status(self) -> str:
        """How the run ended, by its own word; a closed run also has to have reached the target.

        Up to v0.6 accuracies were logged in several ways, and the outcome not always: there the
        word of the log is enough, and where it has none, the target.
        """
        if not self.timeline.count(keys.RUN_STOP):
            return ABORTED
        status = self.timeline.status
        early = not self.round.setup_keys
        if status is None and early:
            return NOT_CONVERGED if self.crossing is None else CONVERGED
        if status != keys.SUCCESS or (self.closed and self.crossing is None and not early):
            return NOT_CONVERGED
        return CONVERGED

    @cached_property
    def global_batch_size(self) -> int | None:
        """Images a step, where the log gives a whole number of them."""
        value = self.timeline.value(keys.GLOBAL_BATCH_SIZE)
        return value if type(value) is int and value > 0 else None

    @property
    def _images_per_second(self) -> float | None:
        """Images trained on over the time of the epochs or their blocks, whichever is longer.

        None where neither is told. An epoch's stop may be logged while the device still works on
        it; a block ends with an evaluation, which waits. Of MLPerf's logs only the number of
        epochs is taken: the images in one are the dataset's.
        """
        epochs, epoch_ms = _sum(self.timeline.epoch_intervals)
        of_blocks, block_ms = _sum(self.timeline.block_intervals)
        milliseconds = max(epoch_ms, block_ms)
        images = (epochs or of_blocks) * TRAIN_SAMPLES
        # Blocks hold the evaluation too where they are not closed before it.
        return images / milliseconds * 1000 if milliseconds > 0 else None


@dataclass
class ForeignSet:
    """The runs that make one benchmark result, with what stands beside them.

    `path` is the folder's (DAWNBench: the JSON file's). `benchmark` is MLPerf's name of it;
    where it is not ResNet-50 the set was recognised and not read. `description` is the system's,
    as far as it could be read; `described` says whether one belongs there; `scaling_factor` is
    the published one, for comparison. `odd` holds (path, message) of what could not be read.
    """

    source: str
    path: str
    benchmark: str
    runs: tuple[ForeignRun, ...] = ()
    of_round: Round | None = None
    submitter: str = ""
    system: str = ""
    description: dict[str, JSON] | None = None
    description_path: str | None = None
    described: bool = False
    scaling_factor: JSON = None
    scaling_path: str | None = None
    odd: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def unjudged(self) -> str:
        """Why none of its runs can be judged; empty where one can."""
        if self.source == MLPERF and self.benchmark != MLPERF_BENCHMARK:
            return f"only ResNet-50 is judged here, this is {self.benchmark[:40]}"
        reasons = Counter(run.unjudged for run in self.runs)
        if "" in reasons:
            return ""
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(4))
        kinds = "; or ".join(dict.fromkeys(run.log.other for run in self.runs if run.log.other))
        told += f"; without a record is what is {kinds}" if kinds else ""
        return f"no result in {how_many(len(self.runs), 'run')}: {told}"

    @property
    def round(self) -> Round | None:
        """The round by the folder, or by the runs."""
        return self.of_round or (self.runs[0].round if self.runs else None)

    @cached_property
    def division(self) -> str:
        """The runs' division; `closed/open` where they do not agree."""
        return "/".join(sorted({run.division for run in self.runs})) or "unknown"

    @property
    def closed(self) -> bool:
        """Whether all runs are of the closed division."""
        return bool(self.runs) and all(run.closed for run in self.runs)

    @cached_property
    def score(self) -> Score:
        """The benchmark result, by the rule that MLPerf and this project share."""
        return score([] if self.unjudged else [r.facts.counted_minutes() for r in self.runs])

    @cached_property
    def global_batch_size(self) -> int | None:
        """The batch of most runs (the first of several that are equally frequent)."""
        found = [run.global_batch_size for run in self.runs]
        known = [batch for batch in found if batch is not None]
        return max(known, key=known.count) if known else None

    @cached_property
    def convergence(self) -> Convergence:
        """The mean epochs and the round's reference; no reference in the open division."""
        epochs = [run.facts.counted_epochs for run in self.runs]
        reference = None
        batch = self.global_batch_size
        if self.closed and batch is not None and self.round and self.round.references:
            known = references(CURRENT, BENCHMARK, self.round.references)
            reference = None if known is None else known.at(batch)
        return Convergence(mean_epochs(epochs) if len(epochs) > 2 else None, reference)

    @property
    def factor(self) -> float | None:
        """What the score is multiplied by; None where it does not count."""
        if self.round is None or not self.round.scaled:
            return 1.0
        return self.convergence.factor

    @property
    def scaled_minutes(self) -> float | None:
        """The benchmark result after reference convergence points."""
        return self.score.scaled(self.factor)

    @property
    def epochs_mean(self) -> float | None:
        """Mean epochs of all runs that say how many they took."""
        return known_mean(run.facts.epochs for run in self.runs)

    @property
    def images_per_second(self) -> float | None:
        """Mean throughput of the runs."""
        return known_mean(run.facts.images_per_second for run in self.runs)

    @property
    def chips(self) -> int | None:
        """Accelerators by the system's description; processors where it has none of those."""
        description = {
            name.replace(" ", "_"): value for name, value in (self.description or {}).items()
        }
        nodes = _count(description.get("number_of_nodes"))
        for name in ("accelerators_per_node", "host_processors_per_node"):
            each = _count(description.get(name))
            if each:
                return each * nodes if nodes else None
        return None


def read_object(found: ForeignSet, file: Path, shown: str) -> dict[str, JSON] | None:
    """The JSON object in a file beside a set, called `shown`; what is wrong with it is `odd`."""
    value, fault = read_json(file, shown)
    if fault is not None:
        found.odd.append((shown, fault))
    return value if isinstance(value, dict) else None


def _sum(intervals: Iterable[Interval]) -> tuple[float, float]:
    """Epochs and milliseconds of the intervals that were closed."""
    epochs = milliseconds = 0.0
    for interval in intervals:
        if interval.duration_ms is not None:
            epochs += interval.epoch_count or 1
            milliseconds += interval.duration_ms
    return epochs, milliseconds


def _count(value: JSON) -> int | None:
    """A number of things, which descriptions also write as text; None for anything else."""
    if isinstance(value, str) and _WHOLE.match(value):
        value = float(value)
    count = number(value)
    if count is None or not 0 <= count < _MOST_CHIPS or count != int(count):
        return None
    return int(count)
