"""What a site says of its cluster, once, in a small TOML file: queues, containers, modules.

Read from `--site FILE`, else FOURMIN_SITE, else fourmin/site.toml below XDG_CONFIG_HOME
(~/.config). A section belongs to the launcher of its name, and options of `fourmin run` go over it.
None of it can change what training computes, so none of it is part of the configuration. The file
is the user's own: its `setup` lines are shell, everything else is data and quoted as such.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from fourmin.base.errors import FourminError, list_names
from fourmin.base.files import read_given, user_folder
from fourmin.base.toml import MALFORMED, tomllib
from fourmin.launch.registry import LAUNCHERS, imported, kind_of

SITE_VARIABLE = "FOURMIN_SITE"
SITE_FILE = "site.toml"
Section = TypeVar("Section")


@dataclass(frozen=True)
class ContainerSite:
    """`[container]`: what workers run in. `enroot` is pyxis's --container-image."""

    runtime: str = ""
    image: str = ""
    mounts: tuple[str, ...] = ()
    """HOST:CONTAINER each."""
    options: tuple[str, ...] = ()
    python: str = "python3"
    """The interpreter inside the image that has fourmin installed."""


@dataclass(frozen=True)
class Site:
    """The whole file. `environment` is set in every job."""

    sections: Mapping[type, Any] = field(default_factory=dict)
    """Those of the launchers that it has, by their dataclass."""
    container: ContainerSite = ContainerSite()
    environment: Mapping[str, str] = field(default_factory=dict)

    def section(self, kind: type[Section]) -> Section:
        """A launcher's section; its defaults where the file has none."""
        return cast(Section, self.sections[kind]) if kind in self.sections else kind()

    def over(self, launcher: str, changes: Mapping[str, Any]) -> Site:
        """A copy in which what was given (not None) goes over the section of `launcher`.

        Lists are added to the file's. Raises FourminError for what the launcher does not know.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        if not given:
            return self
        target = kind_of(launcher).section
        section: Any = self.section(imported(target)) if target else None
        unknown = [f"--{name.replace('_', '-')}" for name in given if not hasattr(section, name)]
        if unknown:
            raise FourminError(f"launcher {launcher} has no use for {', '.join(unknown)}")
        for name, value in given.items():
            if isinstance(value, (list, tuple)):
                given[name] = (*getattr(section, name), *value)
        changed = {type(section): dataclasses.replace(section, **given)}
        return dataclasses.replace(self, sections={**self.sections, **changed})


def load_site(file: Path | None) -> Site:
    """The site file that is named, or the user's own, or nothing at all.

    Raises FourminError for a file that is missing, is no TOML or says what nobody asked for.
    """
    named = file or (Path(os.environ[SITE_VARIABLE]) if os.environ.get(SITE_VARIABLE) else None)
    try:
        path = named or user_folder("XDG_CONFIG_HOME", ".config") / SITE_FILE
    except FourminError:  # without a home folder there is none of the user's own
        return Site()
    try:
        data = tomllib.loads(read_given(path).decode())
    except FileNotFoundError:
        if named is None:
            return Site()
        raise FourminError(f"no site file {path}", next_step="see docs/hpc.md") from None
    except (OSError, *MALFORMED) as error:
        raise FourminError(f"the site file {path} cannot be read", str(error)) from None
    return parse_site(data, str(path))


def parse_site(data: Mapping[str, Any], source: str) -> Site:
    """The site that parsed TOML means. Raises FourminError, naming the key and `source`."""
    targets = {name: kind.section for name, kind in LAUNCHERS.items() if kind.section}
    known = ["container", "environment", *targets]
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise _wrong(source, f"[{unknown[0]}]", f"known: {list_names(known)}")
    sections = {}
    for name in targets.keys() & data.keys():
        kind = imported(targets[name])
        sections[kind] = _part(kind, data[name], name, source)
    environment = data.get("environment", {})
    if not isinstance(environment, dict):
        raise _wrong(source, "environment", "a table of names and texts")
    for name, value in environment.items():
        if not (name.isidentifier() and name.isascii() and isinstance(value, str)):
            raise _wrong(source, f"environment.{name}", "a variable's name and a text")
        _check_text(value, f"environment.{name}", source)
    container = _part(ContainerSite, data.get("container", {}), "container", source)
    site = Site(sections, container, environment)
    if site.container.runtime not in ("", "apptainer", "enroot"):
        raise _wrong(source, "container.runtime", "apptainer or enroot")
    if bool(site.container.runtime) != bool(site.container.image):
        raise _wrong(source, "container", "both a runtime and an image")
    return site


def _part(kind: Any, data: Any, part: str, source: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(source, part, "a table")
    types = typing.get_type_hints(kind)
    values = {}
    for name, value in data.items():
        place = f"{part}.{name}"
        if name not in types:
            raise _wrong(source, place, f"known: {list_names([*types])}")
        if types[name] is int:
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise _wrong(source, place, "a whole number")
        elif types[name] is str:
            if not isinstance(value, str):
                raise _wrong(source, place, "a text")
            _check_text(value, place, source)
        else:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise _wrong(source, place, "a list of texts")
            for item in value:
                _check_text(item, place, source)
            value = tuple(value)
        values[name] = value
    return kind(**values)


def _check_text(value: str, place: str, source: str) -> None:
    if not value.isprintable():
        raise _wrong(source, place, "text on one line, without control characters")


def _wrong(source: str, place: str, wanted: str) -> FourminError:
    return FourminError(
        f"{place} in the site file {source} cannot be used", f"wanted: {wanted}", "see docs/hpc.md"
    )
