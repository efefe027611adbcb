"""What a site says of its cluster, once, in a small TOML file: queues, containers, modules.

Read from `--site FILE`, else FOURMIN_SITE, else fourmin/site.toml below XDG_CONFIG_HOME
(~/.config). Options of `fourmin run` go over it. None of it can change what training computes,
so none of it is part of the configuration. The file is the user's own: its `setup` lines are
shell, everything else is data and quoted as such.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourmin.base.errors import FourminError, list_names
from fourmin.base.files import user_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SITE_VARIABLE = "FOURMIN_SITE"
SITE_FILE = "site.toml"


@dataclass(frozen=True)
class SlurmSite:
    """`[slurm]`: how jobs are submitted, and how workers are bound inside them."""

    partition: str = ""
    account: str = ""
    time_limit: str = ""
    """As sbatch's --time takes it, such as 04:00:00."""
    gpus_per_node: int = 0
    """0: as many as there are workers on a node, where they train on GPUs."""
    cpus_per_task: int = 0
    """0: the whole node (--exclusive)."""
    cpu_bind: str = "none"
    gpu_bind: str = ""
    modules: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    """Lines of shell that run before anything else in a job."""
    directives: tuple[str, ...] = ()
    """Further options of sbatch, such as --qos=high."""
    srun: tuple[str, ...] = ()
    """Further options of srun, such as --mpi=none."""


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
class KubernetesSite:
    """`[kubernetes]`: what a TrainJob needs to know of the cluster."""

    namespace: str = ""
    runtime: str = "torch-distributed"
    image: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = ""
    memory: str = ""
    claim: str = ""
    """A PersistentVolumeClaim that all nodes share, for data and results."""
    mount: str = "/workspace"


@dataclass(frozen=True)
class Site:
    """The whole file. `environment` is set in every job."""

    slurm: SlurmSite = SlurmSite()
    container: ContainerSite = ContainerSite()
    kubernetes: KubernetesSite = KubernetesSite()
    environment: Mapping[str, str] = field(default_factory=dict)

    def with_slurm(self, **changes: Any) -> Site:
        """A copy in which options that were given (not None) go over the file's."""
        given = {name: value for name, value in changes.items() if value is not None}
        directives = self.slurm.directives + tuple(given.pop("directives", ()))
        slurm = dataclasses.replace(self.slurm, directives=directives, **given)
        return dataclasses.replace(self, slurm=slurm)


def load_site(file: Path | None) -> Site:
    """The site file that is named, or the user's own, or nothing at all.

    Raises FourminError for a file that is missing, is no TOML or says what nobody asked for.
    """
    named = file or (Path(os.environ[SITE_VARIABLE]) if os.environ.get(SITE_VARIABLE) else None)
    path = named or user_folder("XDG_CONFIG_HOME", ".config") / SITE_FILE
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if named is None:
            return Site()
        raise FourminError(f"no site file {path}", next_step="see docs/hpc.md") from None
    except (OSError, ValueError) as error:
        raise FourminError(f"the site file {path} cannot be read", str(error)) from None
    return parse_site(data, str(path))


def parse_site(data: Mapping[str, Any], source: str) -> Site:
    """The site that parsed TOML means. Raises FourminError, naming the key and `source`."""
    parts = {"slurm": SlurmSite, "container": ContainerSite, "kubernetes": KubernetesSite}
    unknown = sorted(set(data) - {*parts, "environment"})
    if unknown:
        raise _wrong(source, f"[{unknown[0]}]", f"known: {list_names([*parts, 'environment'])}")
    values: dict[str, Any] = {}
    for name, kind in parts.items():
        values[name] = _part(kind, data.get(name, {}), name, source)
    environment = data.get("environment", {})
    if not isinstance(environment, dict):
        raise _wrong(source, "environment", "a table of names and texts")
    for name, value in environment.items():
        if not (name.isidentifier() and name.isascii() and isinstance(value, str)):
            raise _wrong(source, f"environment.{name}", "a variable's name and a text")
        _check_text(value, f"environment.{name}", source)
    site = Site(**values, environment=environment)
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
