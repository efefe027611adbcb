"""The registered plan of a campaign: what campaign.json holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from fourmin.base.values import listed, mapping
from fourmin.recipe.configuration import Configuration


@dataclass(frozen=True)
class EarlierCampaign:
    """A campaign that was known when another was registered: its digest, and its head then."""

    campaign: str
    head: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is registered before anything runs, in the order of campaign.json. It has no seed."""

    ruleset: str
    benchmark: str
    division: str
    practice: bool
    preset: str
    settings: Sequence[str]
    runs: int
    submitter: str
    system: str
    name: str
    """The campaign's folder. With submitter, system and benchmark its place among submissions."""
    nonce: str
    """128 random bits in hex: no two plans have one digest."""
    chip: str
    """Model of the chips that train: accelerators, or on the CPU the processors in sockets."""
    chips: int
    """Their number, over all nodes."""
    system_digest: str
    package_digest: str
    package_commit: str | None = None
    """The commit with this package; None for an installed wheel, and where files were changed."""
    dataset: Mapping[str, Any]
    configuration: dict[str, Any]
    """As the file says it; `typed_configuration` where that is one."""
    configuration_digest: str
    earlier_campaigns: Sequence[EarlierCampaign]
    """Of the benchmark, those that count."""
    practice_campaigns: Sequence[EarlierCampaign]
    """Those that were practice."""
    earlier_unseen: Sequence[str] = ()
    """Where others may be that could not be looked at, or where this one will not be known."""
    created_ms: int
    practice_seed: int | None = None
    """In practice only: the seed of run 1, chosen instead of assigned."""
    ranked_batch: int | None = None
    """The global batch of the submitter's row in a ranking, as the group's first plan names it."""

    @property
    def typed_configuration(self) -> Configuration:
        """The configuration. Raises FourminError where the file's is none."""
        return Configuration.from_json(self.configuration)

    def unseen_notes(self) -> Iterator[str]:
        """What to tell of `earlier_unseen`."""
        for one in self.earlier_unseen:
            yield f"the plan may lack earlier campaigns, and says so: {one} (see `fourmin doctor`)"

    @property
    def system_kind(self) -> tuple[str, int, Any]:
        """What makes two systems of a submitter one: chip model, number of chips, nodes."""
        return self.chip, self.chips, self.configuration.get("nodes")

    def to_json(self) -> dict[str, Any]:
        """The content of campaign.json."""
        content = {"schema_version": 1, **asdict(self)}
        for name in ("package_commit", "practice_seed", "ranked_batch"):
            if content[name] is None:
                del content[name]
        if not self.earlier_unseen:
            del content["earlier_unseen"]
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        """The plan in a campaign.json that its schema accepts.

        Raises KeyError or TypeError for one that lacks what every plan has.
        """
        said = {field.name: content[field.name] for field in fields(cls) if field.name in content}
        for name in ("earlier_campaigns", "practice_campaigns"):
            said[name] = [EarlierCampaign(**one) for one in content[name]]
        return cls(**said)


def chips_of(
    configuration: Mapping[str, Any], hardware: Mapping[str, Any]
) -> tuple[str, int | None]:
    """Model and number, over all nodes, by a configuration and the hardware of one node.

    Where a machine has several models, all are named. A value that is missing, or none that a
    capture gives, makes the model empty or the number None.
    """
    if configuration.get("device") == "cuda":
        kinds = listed(hardware.get("accelerators"))
        model = ", ".join(sorted({str(mapping(kind).get("model")) for kind in kinds}))
        of_a_node = configuration.get("procs_per_node")
    else:
        processor = mapping(hardware.get("processor"))
        model, of_a_node = str(processor.get("model") or ""), processor.get("sockets")
    nodes = configuration.get("nodes")
    if not isinstance(nodes, int) or not isinstance(of_a_node, int):
        return model, None
    return model, nodes * of_a_node
