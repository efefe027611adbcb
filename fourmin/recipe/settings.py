"""Changes of a configuration as a command line gives them: options of its own, and `--set`."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from fourmin.base.errors import FourminError, list_names
from fourmin.base.values import SIZE_UNITS, parse_size
from fourmin.recipe.configuration import FIELDS, Configuration
from fourmin.recipe.fields import is_auto


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """The fields that `--set name=value` options name, with values of the fields' types.

    Raises FourminError for a missing '=', an unknown name, a repeated name or a value of
    another type.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        name = name.strip()
        if not separator:
            raise FourminError(
                f"--set {setting!r} has no value", next_step="write --set name=value"
            )
        if name in ("preset", "benchmark") or name not in FIELDS:
            raise _unknown_key(name)
        if name in changes:
            raise FourminError(f"--set {name} is given twice")
        changes[name] = from_text(name, text.strip())
    return changes


def _unknown_key(name: str) -> FourminError:
    """The keys that `name` may have been meant for, nearest first; all of them where none is."""
    if name == "preset":
        return FourminError("unknown --set key 'preset'", next_step="choose it with --preset")
    keys = [known for known in FIELDS if known not in ("preset", "benchmark")]
    near = nearest(name, keys)
    return FourminError(
        f"unknown --set key {name!r}",
        f"near: {', '.join(near)}" if near else "",
        "`fourmin presets digits` shows every key" if near else f"known keys: {list_names(keys)}",
    )


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The keys that `name` may have been meant for: by initials, by letters, or by a part."""
    keys, wanted = [*known], name.lower().replace("-", "_").strip("_")
    initials = [key for key in keys if "".join(w[:1] for w in key.split("_")).endswith(wanted)]
    within = [key for key in keys if len(wanted) > 2 and (wanted in key or key in wanted)]
    return [*dict.fromkeys([*initials, *get_close_matches(wanted, keys, 5), *within])]


def requested_changes(options: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The fields that a command's own options (None: not given) and its `--set` options change.

    Raises FourminError as `parse_settings` does, for a field that is given both ways, and for a
    value out of its field's bounds: nothing may be worked out from that.
    """
    given = {
        name: from_text(name, value) if isinstance(value, str) else value
        for name, value in options.items()
        if value is not None
    }
    changes = parse_settings(settings)
    twice = sorted(set(given) & set(changes))
    if twice:
        raise FourminError(f"{twice[0]} is given by an option and by --set: which one?")
    changes = given | changes
    for name, value in changes.items():
        if not is_auto(value):
            FIELDS[name].check(value)
    return changes


def keep_statistics(
    preset: Configuration, config: Configuration, changes: Mapping[str, Any]
) -> Configuration:
    """`config` with as many images sharing batch statistics as in `preset`, where workers share
    them there and `changes` does not name bn_span.

    Raises FourminError where no number of workers takes so many images in a pass.
    """
    parts = config.workers * config.gradient_accumulation_steps
    if preset.bn_span == 1 or "bn_span" in changes or config.global_batch_size % parts:
        return config
    shared, images = preset.bn_span * preset.local_batch_size, config.local_batch_size
    if images and shared % images == 0:
        return dataclasses.replace(config, bn_span=shared // images)
    passes, rest = divmod(config.global_batch_size, config.workers * shared)
    fewer = f"--set gradient_accumulation_steps={passes} for {shared} in a pass; or "
    raise FourminError(
        f"{config.workers} workers cannot keep the {shared} images that share batch statistics in "
        f"preset {preset.preset}",
        f"each takes {images} in a pass, and {shared} is no multiple of that",
        f"{'' if rest or not passes else fewer}--set bn_span=N to share those of N workers",
    )


def as_text(value: Any) -> str:
    """A field's value as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def from_text(name: str, text: str) -> Any:
    """The value of a field that a text means, sizes with their units: 4MiB.

    Raises FourminError for another type or unit.
    """
    field = FIELDS[name]
    if field.type is str:
        return text
    if field.unit in SIZE_UNITS and re.match(r"\d.*[a-z]", text, re.IGNORECASE):
        return field.coerce(parse_size(text) / SIZE_UNITS[field.unit])
    if typing.get_origin(field.type) is tuple:
        text = text if text.startswith("[") else f"[{text}]"
    text = {"none": "null"}.get(text.lower(), text.lower())
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return field.coerce(value)
