"""Places among submissions, on copies of a repository's folder under any name, and false alarms."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from campaign_factory import CREATED_MS, make_campaign, system_description
from foreign_factory import make_package
from signing import allow, make_key, sign
from tamper import apply, read_ledger, reseal
from typer.testing import CliRunner

from fourmin.base.canonical import canonical_bytes
from fourmin.base.files import json_bytes
from fourmin.cli.main import app
from fourmin.report.collect import collect
from fourmin.results.description import untold
from fourmin.results.names import is_dropping, unsafe_name, wrong_folder_name
from fourmin.rules.engine import check, load_campaign
from fourmin.rules.rule import ERROR, Finding

HOME = "lab/box/digits/first"
MEGABYTES_20 = 20 * 1024 * 1024


def _submit(root: Path, place: str, **story: object) -> Path:
    submitter, system, benchmark, name = place.split("/")
    folder = make_campaign(
        root / submitter / system / benchmark,
        submitter=submitter, system_name=system, name=name, **story,
    )  # fmt: skip
    description = json_bytes(system_description(submitter, system))
    (root / submitter / system / "system.json").write_bytes(description)
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of each of two submitters."""
    root = tmp_path_factory.mktemp("places") / "submissions"
    _submit(root, HOME)
    _submit(root, "rival/rack/digits/other", created_ms=CREATED_MS + 10**6, beacon="0b" * 32)
    return root


@pytest.fixture(params=["submissions", "copy"])
def root(request: pytest.FixtureRequest, template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / str(request.param)
    shutil.copytree(template, copy)
    return copy


def _errors(*paths: Path) -> list[Finding]:
    return [f for f in check(paths, waivers=()).findings if f.severity == ERROR]


def _codes(*paths: Path) -> set[str]:
    return {finding.code for finding in _errors(*paths)}


def _exit_code(path: Path, *options: str) -> int:
    return CliRunner().invoke(app, ["validate", str(path), *options]).exit_code


def _stray(name: str, size: int = 1) -> Callable[[Path], None]:
    def attack(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b" " * size)

    return attack


def _after_the_close(root: Path) -> None:
    """Records, with hashes and all."""
    ledger = root / HOME / "ledger.jsonl"
    lines = read_ledger(ledger)
    lines += [lines[-1] | {"kind": "campaign-abandon", "data": {"reason": "x" * 9000}}] * 50
    ledger.write_bytes(b"".join(canonical_bytes(line) + b"\n" for line in lines))
    reseal(root / HOME, ["ledger"])


def _another_submitters(root: Path) -> None:
    """The plan made again with a rival's name, and everything that follows from it."""
    target = root / "rival/rack/digits/first"
    shutil.copytree(root / HOME, target)
    apply(target, [
        {"file": "campaign.json", "set": "/submitter", "to": "rival"},
        {"file": "campaign.json", "set": "/system", "to": "rack"},
        {"file": "run-*/events.log", "key": "submission_org", "set": "/value", "to": "rival"},
        {"file": "run-*/events.log", "key": "submission_platform", "set": "/value", "to": "rack"},
    ])  # fmt: skip
    reseal(target)


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "the submitter's folder renamed": (lambda r: (r / "lab").rename(r / "zoo"), "SUB008"),
    "the system's folder renamed": (lambda r: (r / "lab/box").rename(r / "lab/zoo"), "SUB008"),
    "the benchmark's folder renamed": (
        lambda r: (r / "lab/box/digits").rename(r / "lab/box/resnet50"), "SUB008"),
    "the campaign's folder renamed": (
        lambda r: (r / HOME).rename(r / "lab/box/digits/better"), "SUB008"),
    "a campaign one folder higher": (
        lambda r: (r / HOME).rename(r / "lab/box/first"), "SUB008"),
    "a campaign one folder deeper": (
        lambda r: shutil.move(r / HOME, r / "lab/box/digits/more/first"), "SUB008"),
    "a campaign beside the submitters": (lambda r: (r / HOME).rename(r / "first"), "SUB008"),
    "system.json removed": (lambda r: (r / "lab/box/system.json").unlink(), "SUB001"),
    "every system.json removed": (
        lambda r: [path.unlink() for path in r.glob("*/*/system.json")], "SUB001"),
    "system.json emptied": (lambda r: (r / "lab/box/system.json").write_text("{}"), "SUB001"),
    "a second submitter that differs in case": (lambda r: (r / "Lab").mkdir(), "SUB004"),
    "a page": (_stray("lab/index.html"), "SUB004"),
    "a page in a campaign": (_stray(f"{HOME}/index.html"), "SCH003"),
    "a page in a campaign's folder of folders": (_stray("lab/box/digits/x.html"), "SUB004"),
    "a hidden folder": (_stray(".cache/data"), "SUB004"),
    "a hidden empty folder": (lambda r: (r / "lab/.git").mkdir(), "SUB004"),
    "a deep folder": (_stray("lab/a/b/c/d/e/f/g/h/i/j"), "SUB004"),
    "a link": (lambda r: os.symlink("lab", r / "alias"), "SUB004"),
    "a link to a campaign": (lambda r: os.symlink("first", r / "lab/box/digits/b"), "SUB004"),
    "a name of Windows": (_stray("lab/box/digits/NUL.txt"), "SUB004"),
    "a name in another script": (_stray("l\u0430b/x"), "SUB004"),
    "20 MB as a README": (_stray("README.md", MEGABYTES_20), "SUB004"),
    "20 MB as signers": (_stray("lab/allowed_signers", MEGABYTES_20), "SUB004"),
    "20 MB as a desktop's file": (_stray("lab/.DS_Store", MEGABYTES_20), "SUB004"),
    "20 MB as a signature": (_stray(f"{HOME}/ledger.sig", MEGABYTES_20), "SCH004"),
    "a lock": (_stray(f"{HOME}/.lock", 0), "SUB010"),
    "a lease": (_stray(f"{HOME}/.lock-lease"), "SUB010"),
    "a trace": (_stray(f"{HOME}/run-1/trace.json.gz", MEGABYTES_20), "SUB010"),
    "a temporary file": (_stray(f"{HOME}/.ledger.jsonl.tmp"), "SUB010"),
    "checkpoints": (_stray(f"{HOME}/run-1/checkpoints/state.pt"), "SCH003"),
    "20 MB of blanks after a closed ledger": (
        lambda r: (r / HOME / "ledger.jsonl").open("ab").write(b" " * MEGABYTES_20), "SCH004"),
    "blanks after a closed ledger": (
        lambda r: (r / HOME / "ledger.jsonl").open("ab").write(b" " * 1000), "LED001"),
    "records after a closed ledger": (_after_the_close, "LED002"),
    "a result of MLPerf": (lambda r: make_package(r), "SUB004"),
    "a table of DAWNBench": (
        lambda r: (r / "lab/entry.tsv").write_text("epoch\thours\ttop1Accuracy\ttop5Accuracy\n"),
        "SUB004"),
    "a rival's name in the plan, everything made again": (_another_submitters, "RUN011"),
}  # fmt: skip


def test_as_it_is_and_with_a_readme_and_signers(root: Path) -> None:
    (root / "README.md").write_text("how to submit")
    allow(root, "lab", make_key("lab"))
    sign(root / HOME, make_key("lab"))
    report = check([root], waivers=())
    assert report.ok
    assert sorted(one.kind for one in report.checked) == ["campaign"] * 2 + ["submission"] * 2
    assert _exit_code(root) == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_found(name: str, root: Path) -> None:
    attack, code = ATTACKS[name]
    attack(root)
    report = check([root], waivers=())
    assert code in {finding.code for finding in report.findings if finding.fails}
    # Whatever is done beside it, the rival's campaign stays what it was.
    other = [one for one in report.checked if one.path.endswith("/other")]
    everywhere = name == "every system.json removed"
    assert [one.status for one in other] == ["invalid" if everywhere else "valid"]


@pytest.mark.parametrize(
    "name", ["the submitter's folder renamed", "system.json removed", "a page"]
)
def test_the_command_ends_with_1(name: str, root: Path) -> None:
    ATTACKS[name][0](root)
    assert _exit_code(root) == 1


@pytest.mark.parametrize("place", ["rival/rack/digits/first", "lab/other/digits/first",
                                   "lab/box/resnet50/first", "aaa/box/digits/first"])  # fmt: skip
def test_a_copy_is_an_error_there_and_the_original_stays_valid(place: str, root: Path) -> None:
    copy = root / place
    shutil.copytree(root / HOME, copy)
    if not (copy.parents[1] / "system.json").exists():
        description = json_bytes(system_description(*place.split("/")[:2]))
        (copy.parents[1] / "system.json").write_bytes(description)
    report = check([root], waivers=())
    status = {one.path: one.status for one in report.checked}
    assert status[str(copy)] == "invalid"
    assert status[str(root / HOME)] == "valid"
    assert {f.path for f in report.findings if f.fails} == {f"{copy}/campaign.json"}
    shown = {result.path: (result.valid, result.standing.campaigns)
             for result in collect([root]).results}  # fmt: skip
    assert shown[str(root / HOME)] == (True, 1)
    assert str(copy) not in shown


def test_a_copy_whose_story_is_another_changes_nothing_either(root: Path) -> None:
    copy = root / "aaa/box/digits/first"
    shutil.copytree(root / HOME, copy)
    (copy.parents[1] / "system.json").write_bytes(json_bytes(system_description("aaa", "box")))
    apply(copy, [{"file": "ledger.jsonl", "line": 10, "set": "/time_ms", "add": 1}])
    reseal(copy, ["ledger"])
    assert {f.path for f in _errors(root)} == {f"{copy}/campaign.json"}
    (result,) = [one for one in collect([root]).results if one.submitter == "lab"]
    assert (result.path, result.valid) == (str(root / HOME), True)


def test_a_plan_that_claims_anothers_name_is_shown_as_its_folders(root: Path) -> None:
    made = make_campaign(root / "aaa/box/digits", submitter="lab", system_name="box", name="x",
                         beacon="0d" * 32, epoch_ms=2000.0)  # fmt: skip
    assert "SUB008" in _codes(root)
    results = {one.path: one for one in collect([root]).results}
    assert results[str(made)].submitter == "aaa"
    assert results[str(root / HOME)].standing.campaigns == 1
    assert results[str(root / HOME)].valid


def test_of_a_copied_run_neither_submitter_makes_the_other_invalid(root: Path) -> None:
    _another_submitters(root)
    report = check([root], waivers=())
    assert not report.ok
    assert {one.status for one in report.checked if one.kind == "campaign"} == {"valid"}
    (error,) = {finding.path for finding in report.findings if finding.fails}
    assert error == str(root)
    warned = {os.path.dirname(f.path) for f in report.findings if f.code == "RUN011"}
    assert {f"{root / HOME}/run-1", f"{root}/rival/rack/digits/first/run-1"} <= warned


def test_what_a_rival_says_to_have_seen_makes_nothing_invalid(tmp_path: Path) -> None:
    root = tmp_path / "submissions"
    mine = load_campaign(_submit(root, HOME))
    _submit(root, "rival/rack/digits/x", beacon="0b" * 32, created_ms=CREATED_MS + 10**6,
            earlier=[[mine.digest, "digits", False, "5" * 64]])  # fmt: skip
    findings = [f for f in check([root], waivers=()).findings if f.code == "LED008"]
    assert [(f.severity, f.path) for f in findings] == [
        ("warning", f"{root}/rival/rack/digits/x/campaign.json")
    ]


@pytest.mark.parametrize("first", ["zoo", "aaa"])
def test_of_other_data_both_are_warned_whoever_claims_to_be_first(
    first: str, tmp_path: Path
) -> None:
    root = tmp_path / "submissions"
    imagenet = {"benchmark": "resnet50", "epochs": 36}
    _submit(root, "lab/box/resnet50/first", **imagenet)
    _submit(root, f"{first}/rack/resnet50/other", **imagenet, created_ms=CREATED_MS - 10**6,
            beacon="0b" * 32, dataset={"eval_digest": "3" * 64})  # fmt: skip
    findings = [f for f in check([root], waivers=()).findings if f.code == "DAT006"]
    assert {f.severity for f in findings} == {"warning"}
    assert len({f.path for f in findings}) == 2


def test_a_ledger_and_its_beginning_count_once_and_two_stories_are_errors(root: Path) -> None:
    results = root.parent / "results"
    moved = results / "under-another-name"
    shutil.copytree(root / HOME, moved)
    assert _codes(root, results) == set()
    lines = (moved / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (moved / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    (moved / "summary.json").unlink()
    assert _codes(results, root) == set()
    (result,) = [one for one in collect([results, root]).results if one.submitter == "lab"]
    assert result.path == str(root / HOME)
    apply(moved, [{"file": "ledger.jsonl", "line": 10, "set": "/time_ms", "add": 1}])
    reseal(moved, ["ledger"])
    found = {(f.code, f.path) for f in _errors(root, results)}
    assert found == {("LED015", f"{place}/ledger.jsonl") for place in (moved, root / HOME)}


@pytest.mark.parametrize("part", ["lab", "lab/box", "lab/box/digits", HOME])
def test_a_part_of_submissions_is_judged_as_the_whole(part: str, root: Path) -> None:
    assert _codes(root / part) == set()
    if root.name == "submissions":
        (root / "lab").rename(root / "zoo")
        assert "SUB008" in _codes(root / part.replace("lab", "zoo"))


@pytest.mark.parametrize("part", ["lab", "lab/box"])
@pytest.mark.parametrize("stray", ["x.html", ".hidden/x", "Digits/x"])
def test_a_copy_of_a_part_is_judged_as_well(
    part: str, stray: str, template: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "part"
    shutil.copytree(template / part, copy)
    assert _codes(copy) == set()
    _stray(stray)(copy)
    assert _codes(copy) == {"SUB004"}
    assert {Path(f.path).is_relative_to(copy) for f in _errors(copy)} == {True}


def test_what_desktops_leave_is_one_warning(root: Path) -> None:
    for name in (".DS_Store", "lab/Thumbs.db", "lab/box/._system.json", "lab/box/desktop.ini"):
        _stray(name)(root)
    for name in (".DS_Store", "run-1/.nfs00000000019a2b3c", "run-2/._events.log"):
        _stray(f"{HOME}/{name}")(root)
    report = check([root], waivers=())
    assert report.ok
    found = [(f.code, f.severity, f.path) for f in report.findings if f.severity != "note"]
    assert sorted(found) == [
        ("SUB004", "warning", f"{root}/.DS_Store"),
        ("SUB009", "warning", f"{root / HOME}/.DS_Store"),
    ]


def test_folders_of_results_may_lie_anyhow(tmp_path: Path) -> None:
    work = tmp_path / "self"
    for place in ("results", "results/laptop/digits", "2cpu-x86_64/digits", "more/a/b/c/d"):
        make_campaign(work / place, created_ms=CREATED_MS + len(place) * 10**6,
                      beacon=f"{len(place):064x}")  # fmt: skip
    make_package(work / "results" / "mlperf")
    (work / "notes.html").write_text("x")
    assert {f.code for f in _errors(work)} == set()
    assert _codes(work / "results") == set()
    # A repository may be called so.
    (work / ".git").mkdir()
    repository = work.rename(tmp_path / "submissions")
    assert _codes(repository) == set()
    assert _codes(repository / "results") == set()


def test_a_copy_of_a_submitters_folder_without_descriptions(template: Path, tmp_path: Path) -> None:
    shutil.copytree(template / "lab", tmp_path / "lab")
    (tmp_path / "lab/box/system.json").unlink()
    assert _codes(tmp_path / "lab") == {"SUB001"}
    assert _codes(tmp_path / "lab" / "box") == {"SUB001"}


def test_results_of_others_in_a_folder_of_this_name(tmp_path: Path) -> None:
    make_package(tmp_path / "submissions")
    assert _exit_code(tmp_path / "submissions") == 0


def test_audits_beside_submissions(root: Path) -> None:
    audits = root.parent / "audits"
    digest = load_campaign(root / HOME).digest
    for name in (f"{digest}.json", f"{digest}.challenge.json"):
        _stray(f"auditor/{name}")(audits)
    unsigned = {"SUB028"} if root.name == "submissions" else set()
    assert _codes(root.parent) == unsigned
    _stray("auditor/notes.txt")(audits)
    assert _codes(root.parent) == unsigned | ({"SUB004"} if unsigned else set())


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a b", "é", "CON", "con.txt", "lpt1", "a.", "x" * 201,
             "-x", "_x", "a\n"],
)  # fmt: skip
def test_names_that_name_no_folder(name: str) -> None:
    assert wrong_folder_name(name)


@pytest.mark.parametrize("name", ["a", "8xH100", "2.1-rc+x_y", "console", "x" * 200, "0"])
def test_names_that_do(name: str) -> None:
    assert wrong_folder_name(name) == unsafe_name(name) == ""


def test_droppings_are_told_from_what_only_looks_so() -> None:
    assert all(map(is_dropping, [".DS_Store", "thumbs.DB", "._x", ".nfs00ff", "Desktop.ini"]))
    assert not any(map(is_dropping, ["DS_Store", "x.thumbs.db", "._", ".nfs", ".x", "a._b"]))


def test_the_description_is_of_what_ran(root: Path) -> None:
    path = root / "lab/box/system.json"
    told = json.loads(path.read_bytes())
    for field, value in [
        ("number_of_nodes", 2), ("accelerators_per_node", 1), ("accelerator_model_name", "H100"),
        ("host_processor_model_name", "Test CPU 2"), ("host_processors_per_node", 2),
        ("host_processor_core_count", 1), ("submitter", "rival"), ("system_name", "rack"),
        ("host_memory_capacity", "12 GiB"), ("host_memory_capacity", "a lot"),
    ]:  # fmt: skip
        path.write_bytes(json_bytes(told | {field: value}))
        assert "SUB002" in _codes(root), field
    for field, value in [
        ("host_memory_capacity", "1 TB"), ("host_processor_model_name", "TEST(R) cpu"),
        ("accelerator_model_name", "none"), ("accelerator_model_name", ""),
    ]:  # fmt: skip
        path.write_bytes(json_bytes(told | {field: value}))
        assert _codes(root) == set(), field


@pytest.mark.parametrize(
    "text", ["", " ", "?", "TODO", "todo: ask", "TBD", "<storage>", "unknown", "N/A", "none", "xxx",
             "to be completed", "To do", "...", "fill in", "FIXME"],
)  # fmt: skip
def test_what_tells_nothing(text: str) -> None:
    told = system_description()
    assert untold(told) == []
    assert untold(told | {"host_storage_type": text}) == ["host_storage_type"]


def test_what_must_be_told_of_a_larger_system() -> None:
    told = system_description() | {"accelerators_per_node": "8", "number_of_nodes": 2}
    missing = ["accelerator_model_name", "accelerator_memory_capacity", "host_networking"]
    assert untold(told) == missing
    named = dict.fromkeys(missing, "Todos NVMe-oF")  # begins alike
    assert untold(told | named) == []


@pytest.mark.parametrize(
    "name", ["system.json removed", "every system.json removed", "system.json emptied"]
)
def test_a_campaign_is_no_better_than_the_description_of_its_system(name: str, root: Path) -> None:
    before = {result.path: result.status for result in collect([root]).results}
    assert set(before.values()) == {"valid"}
    ATTACKS[name][0](root)
    told = {one.path: one.status for one in check([root]).verdicts if one.kind == "campaign"}
    assert "invalid" in told.values()
    comparison = collect([root])
    reported = [*comparison.results, *comparison.failed]
    assert {r.path: r.status for r in reported} == told
    wrong = [r for r in reported if r.status == "invalid"]
    assert all("SUB001" in {f.code for f in r.verdict.findings} for r in wrong)
