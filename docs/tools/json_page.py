"""Writes docs/json.md and docs/output.schema.json: the JSON that commands print, by kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fourmin.base.document import SCHEMA_VERSION
from fourmin.campaign.events import _KINDS

DOCS = Path(__file__).resolve().parents[1]
PAGE, SCHEMA = DOCS / "json.md", DOCS / "output.schema.json"

text, number, whole, yes = str, float, int, bool
texts = [text]
maybe_number, maybe_text, maybe_whole = (float, None), (str, None), (int, None)
error = {"what": text, "why": text, "next_step": text}
finding = {
    "code": text, "name": text, "severity": {"error", "warning", "note"}, "path": text,
    "line": maybe_whole, "message": text, "hint": text, "waived": maybe_text, "unchecked": yes,
}  # fmt: skip
statuses = {"valid", "unchecked", "invalid", "fails-here", "not-judged"}
result = {
    "source": {"fourmin", "mlperf", "dawnbench", "published"}, "path": text, "submitter": text,
    "system": text, "benchmark": text, "division": text, "chips": maybe_whole,
    "global_batch_size": maybe_whole, "quality_target": maybe_number,
    "runs": [{"path": text, "status": text, "minutes": maybe_number, "epochs": maybe_number,
              "quality": maybe_number}],
    "minutes": maybe_number, "scaled_minutes": maybe_number, "ci95": ([number], None),
    "cv": maybe_number, "epochs_mean": maybe_number, "images_per_second": maybe_number,
    "scaling_efficiency": maybe_number, "campaigns": whole, "waivers": texts, "findings": whole,
    "valid": yes, "status": statuses, "unchecked": texts, "evidence": texts,
    "registration": {"self", "claimed", "registered", "none"},
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "validation": (
        "`fourmin validate --format json`",
        {
            "ruleset": text,
            "ok": yes,
            "checked": [{"path": text, "kind": text, "ok": yes, "status": statuses,
                         "unchecked": texts, "fails": texts}],
            "findings": [finding],
            "look_first": [{"path": text, "code": text}],
        },
    ),
    "report": (
        "`fourmin report --format json`",
        {
            "ruleset": text,
            "results": [result],
            "failed": [result],
            "pending": [result],
            "practice": [result],
        },
    ),
    "comparison": ("`fourmin report --compare A B --format json`", {"a": {}, "b": {}}),
    "plan": (
        "`fourmin run --dry-run --json`",
        {
            "configuration": {},
            "configuration_digest": text,
            "batch": {},
            "step": text,
            "runs": whole,
            "launcher": text,
            "refused": [error],
        },
    ),
    "event": ("each line of `fourmin run --json`", {"event": set(_KINDS)}),
    "presets": ("`fourmin presets --json`: each by its name", {"digits": {}}),
    "preset": ("`fourmin presets NAME --json`", {"preset": text, "benchmark": text}),
    "rules": (
        "`fourmin rules [CODE] --json`",
        {"rules": [{"code": text, "name": text, "severity": text, "scope": text, "summary": text}]},
    ),
    "doctor": (
        "`fourmin doctor --json`",
        {
            "ok": yes,
            "checks": [{"topic": text, "status": {"ok", "warning", "missing"}, "message": text,
                        "next_step": text}],
            "presets": [{"name": text, "can_run": yes, "how": text, "missing": [error]}],
        },
    ),
    "estimate": (
        "`fourmin estimate --json`",
        {"note": text, "system_profile": text, "configuration": {}, "step": {}},
    ),
    "audit": (
        "`fourmin audit --json`",
        {
            "run": whole,
            "ok": yes,
            "same_machine": yes,
            "comparisons": [{"name": text}],
        },
    ),
    "proof": (
        "`fourmin audit --proof FILE --json`",
        {
            "outcome": {"audited", "close", "undecided", "differs"},
            "same_kind": yes,
            "comparisons": [{"name": text}],
        },
    ),
    "bench-step": ("`fourmin bench step --json`", {"hardware": text, "results": [{"peer": text}]}),
    "bench-data": ("`fourmin bench data --json`", {"hardware": text, "results": [{"stage": text}]}),
    "bench-allreduce": (
        "`fourmin bench allreduce --json`, and the file of its `--output`",
        {"rows": [{"algorithm": text}]},
    ),
    "data-check": ("`fourmin data check --json`", {"differences": texts}),
    "data-prepare": ("`fourmin data prepare --json`", {"images": whole}),
    "data-generate": (
        "`fourmin data generate --json`",
        {"images": whole, "digests": {"train": text, "val": text}},
    ),
}  # fmt: skip
"""Each kind without `fourmin-`: what prints it, and the keys that it has in any case."""

HEAD = """# JSON

Every command that prints JSON prints one object, `fourmin run --json` one a line. Each begins with
`schema_version` (now {version}) and `kind`. Keys may be added within a version, none is renamed or
taken away; [output.schema.json](output.schema.json) has the keys below, as JSON Schema (draft
2020-12). Files of a campaign have schemas of their own, in `rules/<version>/schemas`. Written by
`make docs`.
"""
_NAMES = {str: "string", float: "number", int: "integer", bool: "boolean"}


def schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What commands of fourmin print as JSON",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in KINDS],
        "$defs": {
            name: _schema({"schema_version": {SCHEMA_VERSION}, "kind": {f"fourmin-{name}"}} | keys)
            for name, (_, keys) in KINDS.items()
        },
    }


def _schema(form: Any) -> dict[str, Any]:
    if isinstance(form, dict):
        shown = {"type": "object", "required": list(form)}
        return {**shown, "properties": {name: _schema(one) for name, one in form.items()}}
    if isinstance(form, list):
        return {"type": "array", "items": _schema(form[0])}
    if isinstance(form, tuple):
        return {"anyOf": [_schema(one) for one in form]}
    if isinstance(form, set):
        return {"enum": sorted(form)}
    return {"type": "null" if form is None else _NAMES[form]}


def page() -> str:
    parts = [HEAD.format(version=SCHEMA_VERSION)]
    for name, (command, keys) in KINDS.items():
        rows = "".join(f"| `{key}` | {_words(form)} |\n" for key, form in keys.items())
        parts.append(f"## fourmin-{name}\n\n{command}\n\n| key | |\n|---|---|\n{rows}")
    return "\n".join(parts)


def _words(form: Any) -> str:
    if isinstance(form, dict):
        inside = ", ".join(f"`{name}` {_words(one)}" for name, one in form.items())
        return f"object ({inside})" if inside else "object"
    if isinstance(form, list):
        return f"array of {_words(form[0])}"
    if isinstance(form, tuple):
        return " or ".join(map(_words, form))
    if isinstance(form, set):
        return " or ".join(f"`{one}`" for one in sorted(form))
    return "null" if form is None else _NAMES[form]


if __name__ == "__main__":
    PAGE.write_text(page())
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
