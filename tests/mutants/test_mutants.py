"""Faults planted in a copy of the package, each killed by the test that is named beside it.

What every test of the suite checks is that they can be planted at all: a mutant whose text has
gone would kill nothing, and nobody would see it.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from mutants import AREAS, MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
FEWEST = 30


@cache
def functions_of(path: Path) -> dict[str, str]:
    """The test functions of a file, each with its decorators as text."""
    return {
        node.name: " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def fixtures_of(code: str) -> set[str]:
    """The ids of a rule's failing fixtures, the only cases that mutants name."""
    cases = json.loads((ROOT / f"tests/rules/fixtures/{code}.json").read_text())["failing"]
    return {f"{code}-{case['why'].replace(' ', '-')}" for case in cases}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted_and_its_test_is_there(mutant: Mutant) -> None:
    text = (ROOT / "fourmin" / mutant.file).read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} no longer holds {mutant.old!r} once"
    planted = ast.parse(text.replace(mutant.old, mutant.new))
    assert ast.dump(planted) != ast.dump(ast.parse(text)), "it changes nothing"
    file, _, test = mutant.test.partition("::")
    function, _, case = test.partition("[")
    marks = functions_of(ROOT / file).get(function)
    assert marks is not None, f"no test {mutant.test}"
    assert "slow" not in marks
    assert "gpu" not in marks
    if case:
        assert case.rstrip("]") in fixtures_of(case[:6])


def test_every_area_has_mutants() -> None:
    assert len(MUTANTS) >= FEWEST
    assert {mutant.area for mutant in MUTANTS} == AREAS
    assert [name for name, count in Counter(m.name for m in MUTANTS).items() if count > 1] == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, its compiled modules with it: only what is changed is compiled anew."""
    shutil.copytree(ROOT / "fourmin", tmp_path / "fourmin")
    shutil.copytree(ROOT / "rules", tmp_path / "rules")
    return tmp_path


RunTests = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def run_tests() -> Iterator[RunTests]:
    """`run_tests(folder, *tests)`: pytest's exit code and output, on the folder's package."""
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests/support/forked_pytest.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as forking:  # fmt: skip

        def run(folder: Path, *tests: str) -> tuple[int, str]:
            assert forking.stdin is not None
            assert forking.stdout is not None
            named = [str(ROOT / test) for test in tests]
            forking.stdin.write(json.dumps({"folder": str(folder), "tests": named}) + "\n")
            forking.stdin.flush()
            code = int(forking.stdout.readline())
            return code, (folder / "output.txt").read_text(errors="replace")

        yield run
        forking.communicate()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_test_kills_the_mutant(mutant: Mutant, copy: Path, run_tests: RunTests) -> None:
    source = copy / "fourmin" / mutant.file
    source.write_text(source.read_text().replace(mutant.old, mutant.new))
    code, output = run_tests(copy, mutant.test)
    # 1 is a failed test; anything else says that no test was run.
    assert code == 1, output


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_untouched_copy_passes(copy: Path, run_tests: RunTests) -> None:
    code, output = run_tests(copy, *sorted({mutant.test for mutant in MUTANTS}))
    assert code == 0, output
