"""Any value of a submission changed: found, or without effect; and what a forger may choose.

Where he makes nothing else anew, every change is an error or leaves the report as it was. Where he
makes everything else anew, what passes is what docs/security.md lists, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from forger import FOLLOWING, LOGS, campaigns_below, forge
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tamper import apply, read_ledger, read_records, write_ledger, write_records
from worlds import copy_tree, submit

from fourmin.base.errors import FourminError
from fourmin.base.files import json_bytes
from fourmin.report import load_renderer
from fourmin.report.collect import collect
from fourmin.rules.engine import check

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
SECURITY = ROOT / "docs/security.md"

FREE: dict[str, Sequence[str]] = {
    "What a plan is free to say": (
        "campaign.json /nonce", "campaign.json /created_ms", "campaign.json /configuration/*",
        "campaign.json /ranked_batch", "campaign.json /practice_campaigns*",
        "campaign.json /earlier_campaigns*",
        "campaign.json /package_*", "ledger.jsonl seeds-assigned /data/beacon",
    ),
    "Time stamps": (
        "events.log * /time_ms", "events.log * /metadata/monotonic_ms", "ledger.jsonl * /time_ms",
        "ledger.jsonl run-result /data/run_stop_ms", "events.log run_start /metadata/boot",
        "events.log run_restart /metadata/boot",
    ),
    "Losses and measurements": (
        "events.log step_loss /value/*", "events.log tracked_stats /value/train_loss",
        "events.log tracked_stats /value/throughput",
        "events.log tracked_stats /value/exposed_ms_median", "events.log communication /value/*",
        "events.log checkpoint /value/milliseconds", "events.log energy /value/*",
        "events.log clocks /value/*",
    ),
    "Right answers below the target": ("events.log eval_accuracy /metadata/correct_count",),
    "Digests of weights and order": (
        "events.log initial_weights_digest /value", "events.log weights_digest /value",
        "events.log data_order_digest /value",
    ),
    "Where in the source a record was written": (
        "events.log * /metadata/file", "events.log * /metadata/lineno",
    ),
    "What the machine says of itself": (
        "events.log system /value/environment*", "events.log system /value/interpreter_changes*",
        "events.log system /value/software/*", "events.log system /value/limits*",
        "events.log cache_clear /value",
    ),
    "Descriptions": ("system.json /*",),
}  # fmt: skip
"""What passes with everything else made anew: the words of docs/security.md, and the places."""

KEPT = {
    "events.log": {FOLLOWING, "logs", "campaign"},
    "result.json": {"results", "summary"},
    "summary.json": {"summary"},
    "ledger.jsonl": {"seeds", "logs"},
    "campaign.json": set[str](),
    "system.json": set[str](),
}
"""Which steps of the forger would undo an edit of a file."""


NOT_HIS_TO_MAKE = (
    OSError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, FourminError,
)  # fmt: skip
"""What comes of formulas over values that are none."""


class Tree:
    """A root of submissions that is edited again and again, and is then as it was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bytes = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self.shown = self.report()
        assert self.errors() == set()

    def report(self) -> Any:
        return json.loads(load_renderer("json")(collect([self.root])))

    def restore(self) -> None:
        for path, data in self.bytes.items():
            if path.read_bytes() != data:
                path.write_bytes(data)

    def errors(self) -> set[str]:
        return {f.code for f in check([self.root], waivers=()).findings if f.fails}


def _items(path: Path) -> list[Any]:
    if path.name == "events.log":
        return read_records(path)
    if path.name == "ledger.jsonl":
        return read_ledger(path)
    return [json.loads(path.read_bytes())]


def _write(path: Path, items: list[Any]) -> None:
    if path.name == "events.log":
        write_records(path, items)
    elif path.name == "ledger.jsonl":
        write_ledger(path, items)
    else:
        path.write_bytes(json_bytes(items[0]))


def _leaves(value: Any, pointer: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Pointer, holder and key of everything in a value that is no container with content."""
    for key in value if isinstance(value, dict) else range(len(value)):
        below = f"{pointer}/{key}"
        if isinstance(value[key], (dict, list)) and value[key]:
            yield from _leaves(value[key], below)
        else:
            yield below, value, key


def _others(value: Any) -> list[Any]:
    """What may stand in the place of a value."""
    if isinstance(value, bool):
        return [not value, None, 1]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2, 0, -1, float(value), str(value), 2**53 - 1]
    if isinstance(value, float):
        return [value * 1.01, value * 0.5, value * 100, 0.0, -value, str(value)]
    if isinstance(value, str):
        return [value[:-1] + ("0" if value[-1:] != "0" else "1"), value + "x", "", 0, value.upper()]
    return [0, "x", True] if value is None else [None, [0], {"x": 1}]


@dataclass(frozen=True)
class Edit:
    """Where (`place`, as the table of free values names it) and what is changed."""

    path: Path
    place: str
    item: int
    pointer: str
    before: Any
    after: Any


def _edit(tree: Tree, data: st.DataObject) -> Edit:
    """Change one value at random, or take it away; on the disk."""
    kinds = sorted({path.name for path in tree.bytes} & set(KEPT))
    name = data.draw(st.sampled_from(kinds))
    path = data.draw(st.sampled_from(sorted(path for path in tree.bytes if path.name == name)))
    items = _items(path)
    item = data.draw(st.sampled_from(range(len(items))))
    pointer, holder, key = data.draw(st.sampled_from(list(_leaves(items[item]))))
    before = holder[key]
    kind = items[item].get("key") or items[item].get("kind") or ""
    place = f"{name} {kind} {pointer}".replace("  ", " ")
    after = data.draw(st.sampled_from([*_others(before), "(taken away)"]))
    if after == "(taken away)":
        del holder[key]
    else:
        holder[key] = after
    _write(path, items)
    return Edit(path, place, item, pointer, before, after)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A campaign of the factory, with a restart and an attempt that never started."""
    root = tmp_path_factory.mktemp("random") / "submissions"
    submit(root, "lab", "box", 0, restarts=[(2, 4)], retried=[3], joules=[90.0] * 5)
    return Tree(root)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The repository's own submissions."""
    root = tmp_path_factory.mktemp("published") / "submissions"
    copy_tree(ROOT / "submissions", root)
    return Tree(root)


def _alone(tree: Tree, data: st.DataObject) -> None:
    try:
        edit = _edit(tree, data)
        if not tree.errors():
            assert tree.report() == tree.shown, edit
    finally:
        tree.restore()


def _forged(tree: Tree, data: st.DataObject) -> None:
    try:
        edit = _edit(tree, data)
        _count_again(edit)
        with suppress(*NOT_HIS_TO_MAKE):
            forge(tree.root, keep=KEPT[edit.path.name])  # as far as he comes
        if _now(edit) != edit.before and not tree.errors():
            assert free(edit.place), edit
    finally:
        tree.restore()


def _count_again(edit: Edit) -> None:
    """An accuracy is what the counts give, and the forger can divide."""
    if "eval_accuracy /metadata" not in edit.place:
        return
    items = _items(edit.path)
    metadata = items[edit.item]["metadata"]
    with suppress(KeyError, TypeError, ZeroDivisionError):
        items[edit.item]["value"] = metadata["correct_count"] / metadata["samples_count"]
    _write(edit.path, items)


def _now(edit: Edit) -> Any:
    """What stands in the place of an edit after all else was made anew."""
    value = _items(edit.path)[edit.item]
    for name in edit.pointer.split("/")[1:]:
        if isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name, "(taken away)") if isinstance(value, dict) else None
    return value


CHOSEN: dict[str, Sequence[dict[str, Any]]] = {
    "What a plan is free to say": [{"file": "campaign.json", "set": "/nonce", "to": "ab" * 16}],
    "Time stamps": [{"file": LOGS, "key": "energy", "set": "/time_ms", "add": 1}],
    "Losses and measurements": [
        {"file": LOGS, "key": "tracked_stats", "nth": -1, "set": "/value/train_loss", "add": 0.001}
    ],
    "Right answers below the target": [
        {"file": LOGS, "key": "eval_accuracy", "nth": 0, "set": "/value", "to": 100 / 360},
        {"file": LOGS, "key": "eval_accuracy", "nth": 0, "set": "/metadata/correct_count",
         "to": 100},
    ],
    "Digests of weights and order": [
        {"file": "run-2/events.log", "key": "data_order_digest", "set": "/value", "to": "d" * 64}
    ],
    "Where in the source a record was written": [
        {"file": LOGS, "key": "seed", "set": "/metadata/lineno", "to": 1}
    ],
    "What the machine says of itself": [
        {"file": LOGS, "key": "system", "set": "/value/hardware/processor/model", "to": "Any CPU"}
    ],
    "Descriptions": [{"file": "../../system.json", "set": "/operating_system", "to": "Linux"}],
}  # fmt: skip


@pytest.mark.parametrize("row", FREE)
def test_what_may_be_chosen_passes(row: str, tree: Tree) -> None:
    """Each row of the table, so that the page claims nothing that is found."""
    (campaign,) = campaigns_below(tree.root)
    try:
        forge(campaign, CHOSEN[row])
        if row == "What the machine says of itself":  # and its description after it
            told = {"file": "system.json", "set": "/host_processor_model_name", "to": "Any CPU"}
            apply(campaign.parents[1], [told])
        assert tree.errors() == set()
        assert any(path.read_bytes() != data for path, data in tree.bytes.items())
    finally:
        tree.restore()


def test_the_page_lists_what_may_be_chosen() -> None:
    section = SECURITY.read_text().partition("\n## What a forger may choose")[2]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line[:2] == "| "]
    assert rows[1:] == list(FREE)


def free(place: str) -> list[str]:
    """The rows of the table that a place belongs to."""
    return [row for row, patterns in FREE.items() if any(fnmatchcase(place, p) for p in patterns)]


def _property(examples: int, of: Callable[[Tree, st.DataObject], None], on: str) -> Any:
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(data=st.data())
    def test(request: pytest.FixtureRequest, data: st.DataObject) -> None:
        of(request.getfixturevalue(on), data)

    return test


test_an_edit_alone = _property(30, _alone, "tree")
test_an_edit_alone_of_what_is_published = _property(10, _alone, "published")
test_an_edit_with_everything_made_anew = _property(30, _forged, "tree")
test_an_edit_with_everything_made_anew_of_what_is_published = _property(10, _forged, "published")


def _slow(of: Callable[[Tree, st.DataObject], None]) -> Any:
    return pytest.mark.timeout(3600)(pytest.mark.slow(_property(1000, of, "tree")))


test_many_edits_alone = _slow(_alone)
test_many_edits_with_everything_made_anew = _slow(_forged)
