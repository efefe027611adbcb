"""The shape of the package: floors, circles, sizes."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from code_lines import code_lines, count
from floors import FLOORS

PACKAGE = Path(__file__).resolve().parents[2] / "fourmin"

LONGEST_MODULE = 400
MOST_CODE_LINES = 37_445


@dataclass(frozen=True)
class Import:
    """`importer` takes `imported`: modules of the package, without `fourmin.` in front."""

    importer: str
    imported: str
    line: int
    for_types_only: bool


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> dict[str, ast.Module]:
    """The syntax of every module, by name; the package itself is the empty one."""
    return {name_of(path): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


def imports_of(name: str, tree: ast.Module, known: set[str]) -> Iterator[Import]:
    """Every import of the package's own modules, wherever it stands."""
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import, line {node.lineno}"
            inside = (node.module or "").removeprefix("fourmin").removeprefix(".")
            if (node.module or "").split(".")[0] != "fourmin":
                continue
            for alias in node.names:
                below = f"{inside}.{alias.name}".lstrip(".")
                target = below if below in known else inside
                yield Import(name, target, node.lineno, id(node) in for_types)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "fourmin":
                    target = alias.name.removeprefix("fourmin").removeprefix(".")
                    yield Import(name, target, node.lineno, id(node) in for_types)


@cache
def imports() -> tuple[Import, ...]:
    trees = sources()
    return tuple(one for name, tree in trees.items() for one in imports_of(name, tree, set(trees)))


def room(module: str) -> str:
    return module.split(".")[0]


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one node, each sorted (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = [stack.pop()]
            while part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def breaches() -> set[str]:
    """Everything that is not as it should be, in words."""
    level = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    found = set()
    modules: dict[str, set[str]] = defaultdict(set)
    rooms: dict[str, set[str]] = defaultdict(set)
    for one in imports():
        # The package's own module holds the version, and `python -m fourmin` is the door.
        if one.importer in ("", "__main__") or not one.imported:
            continue
        above, below = room(one.importer), room(one.imported)
        found.update(f"{name} is on no floor" for name in (above, below) if name not in level)
        if level.get(below, -1) > level.get(above, len(level)):
            found.add(f"{one.importer} imports {one.imported}, which is above it")
        if not one.for_types_only:
            modules[one.importer].add(one.imported)
            if above != below:
                rooms[above].add(below)
    found.update(f"in a circle: {', '.join(part)}" for part in circles(modules))
    found.update(f"rooms in a circle: {', '.join(part)}" for part in circles(rooms))
    for path in PACKAGE.rglob("*.py"):
        lines = path.read_text().count("\n")
        if lines > LONGEST_MODULE:
            found.add(f"{name_of(path)} is longer than {LONGEST_MODULE} lines")
    return found


def test_no_import_goes_up_or_in_a_circle_and_no_module_is_too_long() -> None:
    assert sorted(breaches()) == []


def test_the_package_does_not_grow() -> None:
    assert sum(count(PACKAGE).values()) <= MOST_CODE_LINES


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d", "f"}, "f": set()}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]


def test_imports_are_seen_wherever_they_stand() -> None:
    source = (
        "import fourmin.a\nfrom fourmin.b import c, other\nimport os\n"
        "if TYPE_CHECKING:\n    from fourmin import d\n"
        "def f():\n    from fourmin.e import g\n"
    )
    found = list(imports_of("x", ast.parse(source), {"a", "b", "b.c", "d", "e"}))
    assert [(one.imported, one.for_types_only) for one in found] == [
        ("a", False), ("b.c", False), ("b", False), ("d", True), ("e", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# a comment\n\nx = 1  # another\n", 1),
        ('"""A docstring\n\nof three lines."""\nx = 1\n', 1),
        ('def f():\n    """One."""\n    return [\n        # nothing\n        1,\n    ]\n', 4),
        ('x = """text\nthat counts"""\n', 2),
        ('class A:\n    a: int\n    """What a is."""\n    b = "no docstring"\n', 3),
        ('x = (1 +\n     2)\n"a string alone"; y = 3\n', 3),
    ],
)
def test_code_lines_are_those_with_code(source: str, lines: int) -> None:
    assert code_lines(source) == lines
