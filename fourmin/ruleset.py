"""Rulesets are data: benchmarks, limits, schemas and reference points, read and never copied.

In a checkout they lie in the folder `rules/`; the wheel carries the same folder inside the
package as `_rulesets`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fourmin.base.canonical import JSON, loads_strict
from fourmin.base.errors import FourminError, list_names, unknown
from fourmin.base.files import rulesets_folder

CURRENT = "1.0"
"""The ruleset of new campaigns."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark of a ruleset: dataset, target, schedule, number of runs, limits."""

    name: str
    title: str
    dataset: Mapping[str, Any]
    quality_target: float
    eval_every: int
    eval_offsets: tuple[int, ...]
    runs: int
    models: tuple[str, ...]
    closed: Mapping[str, Mapping[str, Any]]
    largest_batch: int | None
    """Where the closed division ends: the batch of the largest reference point, if there is one."""

    @property
    def train_samples(self) -> int:
        return int(self.dataset["train_samples"])

    @property
    def eval_samples(self) -> int:
        return int(self.dataset["eval_samples"])

    def evaluates_after(self, epoch: int, offset: int) -> bool:
        """Whether the fixed schedule evaluates after `epoch` (counted from 1)."""
        return epoch >= 1 and epoch % self.eval_every == offset % self.eval_every

    def scheduled(self, max_epochs: int, offset: int) -> range:
        """The epochs after which a run of `max_epochs` epochs is evaluated, ascending."""
        first = offset % self.eval_every or self.eval_every
        return range(first, max_epochs + 1, self.eval_every)

    def closed_violations(self, configuration: Mapping[str, Any]) -> list[str]:
        """What the closed division does not allow in `configuration`, in plain words.

        A limit is `choices` (a list), `minimum` and `maximum` (either, both inclusive) or
        `power_of_two_multiple_of` (a number x: x * 2^n, n any whole number). With `when` it
        applies only where every field named there has the value, or keeps the limit, given for
        it. A configuration that lacks such a field does not escape the limit.
        """
        violations = []
        batch, largest = configuration.get("global_batch_size"), self.largest_batch
        if largest is not None and isinstance(batch, int) and batch > largest:
            violations.append(
                f"global_batch_size is {batch!r}; the closed division ends at {largest}, the "
                "batch of the largest reference point"
            )
        for name, limit in sorted(self.closed.items()):
            value = configuration.get(name)
            conditions = limit.get("when", {})
            if _all_hold(conditions, configuration) and not _within(limit, value):
                where = [f"{key} is {_in_words(only)}" for key, only in conditions.items()]
                violations.append(
                    f"{name} is {value!r}; the closed division allows {_in_words(limit)}"
                    + (f" where {' and '.join(where)}" if where else "")
                )
        return violations


def _all_hold(conditions: Mapping[str, Any], configuration: Mapping[str, Any]) -> bool:
    return all(
        name not in configuration or _within(_as_limit(condition), configuration[name])
        for name, condition in conditions.items()
    )


def _as_limit(condition: Any) -> Mapping[str, Any]:
    return condition if isinstance(condition, Mapping) else {"choices": [condition]}


def _within(limit: Mapping[str, Any], value: Any) -> bool:
    if "choices" in limit:
        return value in limit["choices"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if "power_of_two_multiple_of" in limit:
        ratio = value / limit["power_of_two_multiple_of"]
        # Decimal fractions such as 2.5e-5 are not exact, nor are their quotients.
        return 0 < ratio < math.inf and abs(math.log2(ratio) - round(math.log2(ratio))) < 1e-9
    return bool(limit.get("minimum", -math.inf) <= value <= limit.get("maximum", math.inf))


def _in_words(condition: Any) -> str:
    limit = _as_limit(condition)
    if "choices" in limit:
        return ", ".join(map(str, limit["choices"]))
    if "power_of_two_multiple_of" in limit:
        return f"{limit['power_of_two_multiple_of']:g} times a power of two"
    if "maximum" not in limit:
        return f"at least {limit['minimum']:g}"
    if "minimum" not in limit:
        return f"at most {limit['maximum']:g}"
    return f"{limit['minimum']:g} to {limit['maximum']:g}"


@dataclass(frozen=True)
class Ruleset:
    """One version of the rules, read from its folder."""

    version: str
    folder: Path

    @cached_property
    def _data(self) -> Any:
        return loads_strict((self.folder / "ruleset.json").read_bytes())

    @property
    def required_checks(self) -> frozenset[str]:
        """The codes of the rules that must have been applied to a campaign that counts."""
        return frozenset(self._data["required_checks"])

    @property
    def most_attempts(self) -> int:
        """How often a run of a campaign that counts may be tried until it starts."""
        return int(self._data["most_attempts"])

    def benchmark_names(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "benchmarks").glob("*.json"))

    def benchmark(self, name: str) -> Benchmark:
        """One benchmark by name. Raises FourminError, naming the known ones."""
        path = self.folder / "benchmarks" / f"{name}.json"
        if name not in self.benchmark_names():
            what = f"no benchmark {name!r} in ruleset {self.version}"
            raise unknown(what, name, self.benchmark_names())
        data: Any = loads_strict(path.read_bytes())
        return Benchmark(
            name=data["name"],
            title=data["title"],
            dataset=data["dataset"],
            quality_target=float(data["quality"]["target"]),
            eval_every=int(data["evaluation"]["every_epochs"]),
            eval_offsets=tuple(data["evaluation"]["offsets"]),
            runs=int(data["runs"]),
            models=tuple(data["models"]),
            closed={**self._data["closed"], **data["closed"]},
            largest_batch=self._largest_batch(name),
        )

    def _largest_batch(self, benchmark: str) -> int | None:
        path = self.folder / "rcp" / f"{benchmark}.json"
        if not path.is_file():
            return None
        data: Any = loads_strict(path.read_bytes())
        return max(int(point["global_batch_size"]) for point in data["rounds"][data["current"]])

    def schema(self, name: str) -> Mapping[str, Any]:
        """The JSON Schema (draft 2020-12) of a kind of file, such as `result`."""
        path = self.folder / "schemas" / f"{name}.schema.json"
        data: Any = loads_strict(path.read_bytes())
        schema: Mapping[str, Any] = data
        return schema


def versions() -> list[str]:
    """The ruleset versions that this installation carries, sorted."""
    return sorted(
        path.parent.name for path in rulesets_folder().glob("*/ruleset.json") if path.is_file()
    )


@cache
def load_ruleset(version: str = CURRENT) -> Ruleset:
    """The ruleset of a version. Raises FourminError, naming the known ones."""
    if version not in versions():
        raise FourminError(
            f"unknown ruleset {version!r}", next_step=f"this fourmin has: {list_names(versions())}"
        )
    return Ruleset(version, rulesets_folder() / version)


def find_benchmark(ruleset: JSON, name: JSON) -> Benchmark | None:
    """The benchmark of these names, as somebody wrote them; None where there is none here."""
    if not isinstance(ruleset, str) or not isinstance(name, str):
        return None
    try:
        return load_ruleset(ruleset).benchmark(name)
    except FourminError:
        return None
