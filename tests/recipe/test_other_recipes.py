"""A rule, an output format, a dataset and a key of the event log, added as CONTRIBUTING says.

Fields, presets and benchmarks are added in test_newcomer.py, an all-reduce in
test_new_allreduce.py, an optimizer in tests/optim, a launcher in tests/campaign.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tree_copy import ROOT, TreeCopy

SUBMISSIONS = str(ROOT / "submissions")

RULE = '''

@rule("RUN099", "named-runs", NOTE, CAMPAIGN)
def named_runs(campaign: CampaignView) -> Iterator[Problem]:
    """A campaign says how many runs it has.

    What it checks
        The number of runs.
    Why it is bad
        It is not.
    Example
        Five runs.
    How to put it right
        Nothing needs to be done.
    """
    yield Problem(f"{len(campaign.runs)} runs")
'''

FORMAT = '''\
"""Names of systems, one a line."""

from __future__ import annotations

from fourmin.report.model import Comparison


def render(comparison: Comparison) -> str:
    """Every result's system."""
    return "".join(f"{result.system}\\n" for result in comparison.results)
'''

DATASET = '''\
"""Light and dark squares."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from fourmin.datasets.cache import cached_tree
from fourmin.datasets.manifest import MANIFEST_NAME, ImageRow, Manifest


def ensure_squares() -> Path:
    """The folder of the squares."""
    def is_built(folder: Path) -> bool:
        return (folder / MANIFEST_NAME).is_file()

    return cached_tree("squares-v1", None, is_built, _build)


def _build(folder: Path) -> None:
    from PIL import Image

    rows = []
    for split, images in (("train", 64), ("val", 16)):
        for number in range(images):
            light = number % 2
            file = io.BytesIO()
            Image.new("L", (16, 16), 40 + 100 * light + number).save(file, "JPEG")
            path, data = f"{light}/{number}.jpg", file.getvalue()
            (folder / split / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / split / path).write_bytes(data)
            rows.append(ImageRow(split, path, len(data), hashlib.sha256(data).digest(), 16, 16))
    Manifest.from_rows(rows).write(folder / MANIFEST_NAME)
'''

PRESET = '''\
"""Squares."""

from __future__ import annotations

from dataclasses import replace

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets.digits import digits


def squares() -> Configuration:
    """ResNet-8 on squares."""
    return replace(digits(), preset="squares", benchmark="squares", global_batch_size=16)
'''


def test_a_rule_is_a_function(tmp_path: Path) -> None:
    copy = TreeCopy(tmp_path)
    module = copy.root / "fourmin" / "rules" / "runs.py"
    text = module.read_text()
    imports = "from fourmin.rules.rule import "
    names = text.partition(imports)[2].partition("\n")[0].split(", ")
    merged = ", ".join(
        sorted({*names, "NOTE", "CAMPAIGN"}, key=lambda name: (name[0].islower(), name))
    )
    module.write_text(text.replace(imports + ", ".join(names), imports + merged) + RULE)
    assert copy.changed() == {"fourmin/rules/runs.py"}
    copy.python("-m", "fourmin.rules.pages")
    assert "RUN099" in (copy.root / "rules" / "1.0" / "RULES.md").read_text()
    assert "A campaign says how many runs it has." in copy.fourmin("rules", "RUN099")
    found = json.loads(copy.fourmin("validate", SUBMISSIONS, "--format", "json"))
    messages = [f["message"] for f in found["findings"] if f["code"] == "RUN099"]
    assert messages == ["5 runs"] * len(list(ROOT.glob("submissions/*/*/*/*/campaign.json")))


def test_an_output_format_is_a_module_and_a_line(tmp_path: Path) -> None:
    copy = TreeCopy(tmp_path)
    (copy.root / "fourmin" / "report" / "names.py").write_text(FORMAT)
    copy.replace(
        "fourmin/report/__init__.py",
        '    "table": "fourmin.report.table",\n',
        '    "table": "fourmin.report.table",\n    "names": "fourmin.report.names",\n',
    )
    assert len(copy.changed()) == 2
    systems = {path.parents[2].name for path in ROOT.glob("submissions/*/*/*/*/campaign.json")}
    said = copy.fourmin("report", SUBMISSIONS, "--format", "names")
    assert set(said.split()) == systems
    refused = copy.fourmin("report", SUBMISSIONS, "--format", "nosuch", code=2)
    assert "names" in refused.partition("known:")[2]


def with_squares(copy: TreeCopy) -> None:
    (copy.root / "fourmin" / "datasets" / "squares.py").write_text(DATASET)
    copy.replace(
        "fourmin/datasets/on_demand.py",
        "ON_DEMAND = {\n",
        'ON_DEMAND = {\n    "squares": OnDemand(ensure_squares, lambda: None),\n',
    )
    copy.replace(
        "fourmin/datasets/on_demand.py",
        "from fourmin.datasets.fashion_mnist import",
        "from fourmin.datasets.squares import ensure_squares\n"
        "from fourmin.datasets.fashion_mnist import",
    )
    assert len(copy.changed()) == 2
    (copy.root / "fourmin/recipe/presets/squares.py").write_text(PRESET)
    registry = "fourmin/recipe/presets/__init__.py"
    line = "from fourmin.recipe.presets.tiny_imagenet import tiny_imagenet\n"
    copy.replace(registry, line,
                 f"from fourmin.recipe.presets.squares import squares\n{line}")  # fmt: skip
    copy.replace(registry, '    "digits": digits,\n',
                 '    "digits": digits,\n    "squares": squares,\n')  # fmt: skip
    benchmarks = copy.root / "rules/1.0/benchmarks"
    benchmark = json.loads((benchmarks / "digits.json").read_text())
    benchmark |= {"name": "squares", "quality": {"metric": "top-1 accuracy", "target": 0.9}}
    benchmark["dataset"] = {
        "name": "squares", "source": "made here", "classes": 2, "train_samples": 64,
        "eval_samples": 16, "train_digest": None, "eval_digest": None,
    }  # fmt: skip
    (benchmarks / "squares.json").write_text(json.dumps(benchmark, indent=2) + "\n")


@pytest.mark.slow
def test_a_dataset_is_a_module_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = TreeCopy(tmp_path / "tree")
    with_squares(copy)
    run = ("run", "--practice", "--preset", "squares", "--runs", "1", "--max-steps", "2")
    copy.fourmin(*run, "--set", "device=cpu", "--results-dir", "r")
    assert "0 errors" in copy.fourmin("validate", "r")
    (path,) = copy.root.glob("r/*/campaign.json")
    assert json.loads(path.read_text())["dataset"]["classes"] == 2


@pytest.mark.slow
def test_a_key_of_the_log_is_a_line_and_where_it_is_logged(tmp_path: Path) -> None:
    copy = TreeCopy(tmp_path)
    copy.replace(
        "fourmin/log/keys.py",
        "FOURMIN_KEYS = (\n",
        'EPOCH_SECONDS = "epoch_seconds"\n"""Seconds of the epoch."""\n'
        "FOURMIN_KEYS = (\n    EPOCH_SECONDS,\n",
    )
    copy.replace(
        "fourmin/training/epochs.py",
        "        self._check_finite(epoch, means)\n",
        "        self._check_finite(epoch, means)\n"
        "        run.log.point(keys.EPOCH_SECONDS, seconds, epoch_num=epoch)\n",
    )
    assert len(copy.changed()) == 2
    copy.python("docs/tools/log_page.py")
    page = (copy.root / "docs" / "log.md").read_text()
    assert "| `epoch_seconds` | fourmin | Seconds of the epoch. |" in page
    run = ("run", "--practice", "--runs", "1", "--max-steps", "2", "--set", "device=cpu")
    copy.fourmin(*run, "--results-dir", "r")
    (log,) = copy.root.glob("r/*/run-1/events.log")
    assert '"key": "epoch_seconds"' in log.read_text()
    assert "0 errors" in copy.fourmin("validate", "r")
