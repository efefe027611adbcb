"""SUB: a system's description is there, is complete, and is that of the system that ran."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fourmin.base.values import mapping, number
from fourmin.ledger.submission import SubmissionView
from fourmin.ledger.view import CampaignView
from fourmin.results.description import is_placeholder, untold
from fourmin.rules.compare import short
from fourmin.rules.rule import ERROR, SUBMISSION, Problem, rule

_BYTES = {"M": 10**6, "MI": 2**20, "G": 10**9, "GI": 2**30, "T": 10**12, "TI": 2**40}
_CAPACITY = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([MGT]I?)B\b", re.IGNORECASE)
_ROUNDED = 0.9
"""A description may round, and write gigabytes for gibibytes."""


@rule("SUB001", "system-description", ERROR, SUBMISSION)
def system_description(submission: SubmissionView) -> Iterator[Problem]:
    """The system is described, with all the fields that are asked for.

    What it checks
        Where there are results there is a system.json; it is strict JSON and valid by its schema,
        which has MLPerf's fields; and nothing that must be told is empty or a placeholder.
    Why it is bad
        A time without the system that it was measured on compares with nothing.
    Example
        A description without `accelerators_per_node`, or with "TODO" for the storage.
    How to put it right
        Let `fourmin submit` write system.json and fill in what it asks for.
    """
    document = submission.system
    if document is None:
        if submission.unreadable:
            yield Problem(f"the system description is {submission.unreadable}")
        elif any(campaign.runs for campaign in submission.campaigns.values()):
            yield Problem("there are results, but no description of their system")
        return
    if document.error is not None:
        yield Problem(document.error.message, document.error.line)
    for wrong in document.schema_errors:
        yield Problem(str(wrong))
    told = document.content or {}
    for name in untold(told) if told else ():
        yield Problem(f"{name} is not told yet: {short(told.get(name))}")


@rule("SUB002", "described-system", ERROR, SUBMISSION)
def described_system(submission: SubmissionView) -> Iterator[Problem]:
    """The description is that of the system that ran.

    What it checks
        Submitter and system name in system.json against the folders that it lies in; number of
        nodes, and models and numbers of accelerators and processors, against each campaign's plan
        and what its runs captured. Models may be written with other capitals, spaces and signs.
        Memory is not below what any run found, but for a tenth, since descriptions round; some
        machines grow it, so it may be more.
    Why it is bad
        A result under another system's description is a result of neither.
    Example
        A campaign on 16 GPUs below a system of 8.
    How to put it right
        Describe the system as its runs captured it, or let `fourmin submit` put the campaign below
        a system of its own.
    """
    document = submission.system
    described = None if document is None else document.content
    if described is None:
        return
    folders = zip(("submitter", "system_name"), submission.place, strict=False)
    for name, folder in folders:
        if folder is not None and described[name] != folder:
            yield Problem(f"{name} is {short(described[name])}, in the folder {folder}")
    found = 0.0
    for below, campaign in submission.campaigns.items():
        for what, here, agrees in _compared(campaign, described):
            if not agrees:
                said = f"{what} is {short(here)}, the description says {short(described[what])}"
                yield Problem(said, path=f"{below}/campaign.json")
        captured = [number(run.facts.hardware.get("memory_gib")) or 0 for run in campaign.runs]
        found = max([found, *captured])
    capacity = _CAPACITY.match(str(described["host_memory_capacity"]))
    told = float(capacity[1]) * _BYTES[capacity[2].upper()] / 2**30 if capacity else 0.0
    if told < _ROUNDED * found:
        said = short(described["host_memory_capacity"])
        yield Problem(f"host_memory_capacity is {said}, the runs found {found:g} GiB")


def _compared(
    campaign: CampaignView, described: Mapping[str, Any]
) -> Iterator[tuple[str, Any, bool]]:
    """Field, what the campaign has, and whether the description agrees; nothing that it lacks."""
    plan = campaign.plan
    if plan is None:
        return
    if not (campaign.place or ()) or None in (campaign.place or ()):
        yield "submitter", plan.submitter, plan.submitter == described["submitter"]
        yield "system_name", plan.system, plan.system == described["system_name"]

    def same(name: str, here: Any) -> tuple[str, Any, bool]:
        return name, here, int(described[name]) == here

    nodes = plan.configuration.get("nodes")
    yield same("number_of_nodes", nodes)
    hardware = next((run.facts.hardware for run in campaign.runs if run.facts.hardware), {})
    processor = mapping(hardware.get("processor"))
    sockets, cpus = processor.get("sockets"), processor.get("cpus")
    if type(sockets) is int and type(cpus) is int and sockets > 0:
        yield same("host_processors_per_node", sockets)
        yield same("host_processor_core_count", cpus // sockets)
    if isinstance(processor.get("model"), str):
        yield _same_models("host_processor_model_name", [processor["model"]], described)
    listed = hardware.get("accelerators")
    if not isinstance(listed, list):
        return
    kinds = [mapping(kind) for kind in listed]
    yield same("accelerators_per_node", sum(int(number(k.get("count")) or 0) for k in kinds))
    if kinds:
        models = [str(kind.get("model")) for kind in kinds]
        yield _same_models("accelerator_model_name", models, described)
    else:
        name = str(described["accelerator_model_name"])
        yield "accelerator_model_name", "none", is_placeholder(name)


def _same_models(
    name: str, models: list[str], described: Mapping[str, Any]
) -> tuple[str, Any, bool]:
    """Whether these models are described, but for what makers write around their names."""
    told = {_plain(one) for one in str(described[name]).split(",")}
    return name, ", ".join(models), told == {_plain(one) for one in models}


def _plain(model: str) -> str:
    return re.sub(r"\((?:r|tm)\)|[^a-z0-9]", "", model.lower())
