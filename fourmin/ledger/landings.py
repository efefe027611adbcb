"""Where plans landed on a base branch, and the beacon that each got: what makes one registered.

The base branch is its first-parent line: a merge is one step of it, whatever it brings. A plan
lands with the first commit of the line that holds its exact bytes at its path. Its beacon is the id
of the first later commit of the line that gives `rules/beacon` other bytes and does nothing else.
A merge is never a beacon, nor a commit that is empty or changes more: whoever proposes a change
could try such commits until the seeds please. (Merged into a change, the base branch shows beside
it what it did since, such as a beacon alone; so would that merge, if it were fast-forwarded.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from fourmin.ledger.git import Repository, Step, Write

BEACON_FILE = "rules/beacon"


@dataclass(frozen=True)
class Landing:
    """The commit that brought a plan, and the plan's beacon, None where there is none yet."""

    commit: str
    beacon: str | None
    stands: bool
    """Whether the branch still holds the plan."""
    order: int = field(default=0, compare=False)
    """How many commits of plans and beacons came before."""
    time_ms: int = field(default=0, compare=False)
    """When the commit was made, as it says."""


class Landings:
    """Every plan that ever landed on a branch, and the branch's beacons, by one call of git."""

    def __init__(self, repository: Repository) -> None:
        self._sha1 = len(repository.branch) == 40
        self._landed: dict[tuple[str, str], int] = {}
        self._present: dict[str, str] = {}
        self._steps: list[Step] = []
        self._beacons: list[int] = []
        for step in repository.steps(BEACON_FILE, "**/campaign.json"):
            number = len(self._steps)
            self._steps.append(step)
            if step.parents < 2 and _is_beacon(step.writes):
                self._beacons.append(number)
            for write in step.writes:
                self._landed.setdefault((write.path, write.after), number)
                self._present[write.path] = write.after

    def of(self, path: str, plan: bytes) -> Landing | None:
        """How a plan's bytes landed at `path` (from the root); None where they never did."""
        blob = self._blob(plan)
        landed = self._landed.get((path, blob))
        if landed is None:
            return None
        beacon = next((number for number in self._beacons if number > landed), None)
        return Landing(
            self._steps[landed].commit,
            None if beacon is None else self._steps[beacon].commit,
            self._present[path] == blob,
            landed,
            self._steps[landed].time_ms,
        )

    def _blob(self, data: bytes) -> str:
        """The name that git gives to a file of these bytes, by the repository's kind of ids."""
        content = b"blob %d\0%b" % (len(data), data)
        made = hashlib.sha1(content) if self._sha1 else hashlib.sha256(content)
        return made.hexdigest()


def _is_beacon(writes: Sequence[Write]) -> bool:
    """Whether this is all of a commit: other bytes in the file of the beacon."""
    if len(writes) != 1:
        return False
    (write,) = writes
    return write.path == BEACON_FILE and write.after not in ("", write.before)
