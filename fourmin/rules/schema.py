"""SCH: every file is strict JSON, valid by its schema, and one that belongs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fourmin.base.files import json_bytes
from fourmin.ledger.file_kinds import file_kind, is_checkpoints
from fourmin.ledger.view import CampaignView, Document
from fourmin.results.estimates import is_estimate
from fourmin.rules.rule import CAMPAIGN, ERROR, Problem, rule


def _documents(campaign: CampaignView) -> Iterator[Document]:
    found = [campaign.plan_document, campaign.summary_document]
    found += [run.result for run in campaign.runs]
    return (document for document in found if document is not None)


@rule("SCH001", "strict-json", ERROR, CAMPAIGN)
def strict_json(campaign: CampaignView) -> Iterator[Problem]:
    """Every JSON file holds one value that means the same to every reader.

    What it checks
        campaign.json, result.json and summary.json are UTF-8 JSON without a byte-order mark,
        duplicate keys, NaN or Infinity, numbers of more than 64 characters or beyond a 64-bit
        float, half surrogate pairs, nesting deeper than 64, or bytes after the value; spaced and
        spelled as fourmin writes it.
    Why it is bad
        Two readers of such a file may see two results: of a key that occurs twice, one takes
        the first value and the other the last.
    Example
        `{"minutes": 1.2, "minutes": 4.8}` in result.json.
    How to put it right
        Restore the file as `fourmin run` wrote it. Files are never edited by hand.
    """
    for document in _documents(campaign):
        error = document.error
        if error is not None:
            yield Problem(error.message, error.line, path=document.path)
        elif document.data != json_bytes(document.value):
            yield Problem("not spaced or spelled as it was written", path=document.path)


@rule("SCH002", "schema", ERROR, CAMPAIGN)
def schema(campaign: CampaignView) -> Iterator[Problem]:
    """Every file has the fields and types that its JSON Schema asks for, and no others.

    What it checks
        campaign.json, result.json, summary.json and each ledger record against the schemas in
        `rules/<version>/schemas/`. An integer is written without a decimal point.
    Why it is bad
        A field that is missing, misspelled or of another type is read as something else, or
        not at all.
    Example
        `"seed": "1234"`: a string where an integer belongs.
    How to put it right
        Restore the file as `fourmin run` wrote it. If it is untouched, it was written by another
        version: validate it with the version that its ruleset names.
    """
    for document in _documents(campaign):
        for error in document.schema_errors:
            yield Problem(str(error), path=document.path)
    for wrong in campaign.chain_problems:
        if wrong.kind == "schema":
            yield Problem(wrong.message, wrong.line, path="ledger.jsonl")


@rule("SCH003", "unexpected-file", ERROR, CAMPAIGN)
def unexpected_file(campaign: CampaignView) -> Iterator[Problem]:
    """A campaign's folder holds the files that the ledger tells of, and nothing else.

    What it checks
        The names in the folder and in its `run-<i>` folders. Known beside the five kinds of
        result files are the lock files, files that an interrupted write left and, while the
        campaign goes on, the checkpoints of a run; in practice, the trace of `run --profile`.
    Why it is bad
        A log under another name is an attempt that no record tells of.
    Example
        `run-2/events.old.log`.
    How to put it right
        Move the file out of the campaign's folder.
    """
    for name in campaign.files:
        kind, practice = file_kind(name), campaign.plan is not None and campaign.plan.practice
        if kind == "unknown" or (kind == "trace" and not practice):
            yield Problem("a file that does not belong to a campaign", path=name)
    runs = {run.path for run in campaign.runs}
    for folder in campaign.folders:
        if is_checkpoints(folder) and not campaign.history.ended:
            continue
        if campaign.where(folder) not in runs:
            yield Problem("a folder that does not belong to a campaign", path=folder)


@rule("SCH004", "unsafe-path", ERROR, CAMPAIGN)
def unsafe_path(campaign: CampaignView) -> Iterator[Problem]:
    """Every name is plain and every file is a regular one that can be read.

    What it checks
        No symbolic links, pipes or devices; names of ASCII letters, digits and `. _ + -`, none
        that Windows reserves, no two of which differ by case alone; files within the size limits;
        readable.
    Why it is bad
        A link shows another file to each reader; names that differ by case alone are one file
        on some systems and two on others.
    Example
        `run-1/result.json` is a link to another campaign's result.
    How to put it right
        Put the file itself there, under its plain name.
    """
    for fault in campaign.faults:
        yield Problem(fault.message, path=fault.path)


@rule("SCH005", "missing-file", ERROR, CAMPAIGN)
def missing_file(campaign: CampaignView) -> Iterator[Problem]:
    """A campaign has its plan and its ledger.

    What it checks
        campaign.json and ledger.jsonl exist. Files that the ledger records are LED004's.
    Why it is bad
        Without the plan nothing says what was registered; without the ledger nothing says what
        was tried.
    Example
        A folder with run-1 to run-5 and a summary.json alone.
    How to put it right
        Restore the file from where the campaign ran.
    """
    for name in ("campaign.json", "ledger.jsonl"):
        if name not in campaign.files:
            yield Problem("the file is missing", path=name)


@rule("SCH006", "unknown-benchmark", ERROR, CAMPAIGN)
def unknown_benchmark(campaign: CampaignView) -> Iterator[Problem]:
    """The plan names a ruleset and a benchmark that exist.

    What it checks
        `ruleset` and `benchmark` in campaign.json against the rulesets of this installation.
    Why it is bad
        Without the benchmark there is no target, no schedule and no limit to hold the runs to.
    Example
        `"benchmark": "resnet50-fast"`.
    How to put it right
        Validate with a fourmin that has this ruleset, or register the campaign for a benchmark
        that exists.
    """
    plan = campaign.plan
    if plan is not None and campaign.benchmark is None:
        yield Problem(f"ruleset {plan.ruleset} has no benchmark {plan.benchmark} here")


@rule("SCH007", "estimate-as-result", ERROR, CAMPAIGN)
def estimate_as_result(campaign: CampaignView) -> Iterator[Problem]:
    """No file is the output of `fourmin estimate`.

    What it checks
        The `kind` of campaign.json, result.json and summary.json, and of every JSON file that is
        given to the validator or lies in a folder of results.
    Why it is bad
        An estimate comes from cost models: nothing was trained, and nothing measured.
    Example
        `fourmin estimate --json > results/estimate.json`, then `fourmin validate results`.
    How to put it right
        Keep estimates out of folders of results. `fourmin run` makes a result.
    """
    for document in _documents(campaign):
        if is_estimate(document.value):
            yield lone_estimate(document.path)


def lone_estimate(path: str) -> Problem:
    """What is wrong with an estimate at `path`, where no campaign is around it."""
    return Problem(
        "this is an estimate by cost models, of kind fourmin-estimate: no result", path=path
    )


@rule("SCH008", "line-ends", ERROR, CAMPAIGN)
def line_ends(campaign: CampaignView) -> Iterator[Problem]:
    """Every file has the line ends that it was written with.

    What it checks
        Whether every line of a file ends in CRLF. All else is then judged as if git had left the
        file as it was, so that this is said once, and not by each hash.
    Why it is bad
        Hashes cover bytes. A checkout with other line ends is another file to everybody who
        does not know.
    Example
        A clone with `core.autocrlf=true`, as Git for Windows sets it, of a repository without
        .gitattributes.
    How to put it right
        Put the line `* -text` into the repository's .gitattributes (or `git config core.autocrlf
        false`), delete these files, and get them again with `git checkout -- .`. No file needs to
        be edited.
    """
    if campaign.converted:
        yield converted_files("", campaign.converted)


def converted_files(path: str, names: Sequence[str]) -> Problem:
    """What is wrong below `path` where git converted the line ends of files."""
    more = f" and {len(names) - 1} more files" if len(names) > 1 else ""
    return Problem(f"every line of {names[0]}{more} ends in CRLF: git converted them", path=path)
