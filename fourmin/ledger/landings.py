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
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fourmin.ledger.campaign import CAMPAIGN_FILE, LEDGER_FILE
from fourmin.ledger.git import Person, Repository, Step, Write
from fourmin.results.places import AUDITS, MAX_SIGNERS_BYTES, SIGNERS_FILE, SUBMISSIONS, Place

BEACON_FILE = "rules/beacon"
_PLANS = f"**/{CAMPAIGN_FILE}"


@dataclass(frozen=True)
class Landing:
    """The commit that brought a file, most often a plan, and the first beacon after it, None where
    there is none yet.
    """

    commit: str
    beacon: str | None
    stands: bool
    """Whether the branch has held the file ever since: taken back, it is so for ever."""
    order: int = field(default=0, compare=False)
    """How many commits of plans, ledgers, beacons and signers came before."""
    time_ms: int = field(default=0, compare=False)
    """When the commit was made, as it says."""
    path: str = field(default="", compare=False)
    blob: str = field(default="", compare=False)
    """The file's place in the repository, and git's name for its bytes."""


SELF, CLAIMED, REGISTERED = "self", "claimed", "registered"
"""How a campaign was registered: by itself; in a repository, as it says; as git proves."""
REGISTRATIONS = {
    SELF: "self-registered",
    CLAIMED: "claims registration",
    REGISTERED: "registered",
}


@dataclass(frozen=True)
class Registration:
    """How a campaign was registered, as far as its files and the history around them show."""

    word: str = "none"
    landing: Landing | None = None
    self_merged: bool = False
    """Whether who wrote the plan also merged it."""
    unproved: str = ""
    """Why a claim is neither proved nor contradicted; `advice` may mend that."""
    advice: str = ""
    contradiction: str = ""
    """What the complete history says against the claim."""

    @property
    def evidence(self) -> tuple[str, ...]:
        """What a reader is told, in short words."""
        merged = "merged by its own submitter" if self.self_merged else ""
        word = REGISTRATIONS.get(self.word)
        return tuple(filter(None, (word, merged, self.unproved)))


NOT_LOOKED_AT = Registration()


class Landings:
    """Every plan and ledger that ever landed on a branch, the branch's beacons, and the keys of its
    submitters, by one call of git.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._sha1 = len(repository.branch) == 40
        self._landed: dict[tuple[str, str], int] = {}
        self._broken: set[tuple[str, str]] = set()
        self._steps: list[Step] = []
        self.beacons: list[int] = []
        """By their order among the commits of plans, ledgers, beacons and signers."""
        self._last: dict[str, tuple[int, str]] = {}
        self._signers: dict[str, list[tuple[int, str]]] = {}
        self._keys: dict[str, bytes] = {}
        names = (CAMPAIGN_FILE, LEDGER_FILE, SIGNERS_FILE)
        below = (f"**/{name}" for name in names)
        for step in repository.steps(BEACON_FILE, f"{AUDITS}/*/*.json", *below):
            number = len(self._steps)
            self._steps.append(step)
            if step.parents < 2 and _is_beacon(step.writes):
                self.beacons.append(number)
            for write in step.writes:
                self._landed.setdefault((write.path, write.after), number)
                self._last[write.path] = number, write.after
                if write.after != write.before:
                    self._broken.add((write.path, write.before))
                if write.path.endswith(f"/{SIGNERS_FILE}"):
                    self._signers.setdefault(write.path, []).append((number, write.after))

    def of(self, path: str, data: bytes) -> Landing | None:
        """How a file's bytes landed at `path` (from the root); None where they never did."""
        key = path, self.blob(data)
        return self._landing(key) if key in self._landed else None

    def find(self, folder: Path, plan: bytes, place: Place) -> Landing | None:
        """How a campaign's plan landed: in its place among submissions, otherwise in `folder`."""
        here = self.repository.relative(str(folder))
        home = "/".join((SUBMISSIONS, *map(str, place))) if place else None
        for where in (home, here):
            path = None if where is None else posixpath.normpath(f"{where}/{CAMPAIGN_FILE}")
            landing = None if path is None else self.of(path, plan)
            if landing is not None:
                return landing
        return None

    def submitted(self) -> Iterator[tuple[Landing, str]]:
        """Every landing in a campaign's place among submissions that HEAD's history has, with git's
        name for the ledger that came with it (empty where none did).
        """
        for path, blob in self._landed:
            folder, _, name = path.rpartition("/")
            levels = folder.split("/")
            if blob and name == CAMPAIGN_FILE and levels[0] == SUBMISSIONS and len(levels) == 5:
                landing = self._landing((path, blob))
                writes = self._steps[landing.order].writes
                ledger = next((w.after for w in writes if w.path == f"{folder}/{LEDGER_FILE}"), "")
                if landing.commit not in self.repository.ahead:
                    yield landing, ledger

    def self_merged(self, landing: Landing) -> bool:
        """Whether who wrote a plan also merged it, as far as commits tell."""
        step = self._steps[landing.order]
        key = landing.path, landing.blob
        author = self._writers.get(key, step.author) if step.parents > 1 else step.author
        return author.is_also(step.committer)

    @cached_property
    def _writers(self) -> dict[tuple[str, str], Person]:
        """Who first wrote each plan, in whatever was merged."""
        found: dict[tuple[str, str], Person] = {}
        for step in self.repository.steps(_PLANS, within=True):
            for write in step.writes:
                found.setdefault((write.path, write.after), step.author)
        return found

    def _landing(self, key: tuple[str, str]) -> Landing:
        landed = self._landed[key]
        beacon = next((number for number in self.beacons if number > landed), None)
        return Landing(
            self._steps[landed].commit,
            None if beacon is None else self._steps[beacon].commit,
            key not in self._broken,
            landed,
            self._steps[landed].time_ms,
            *key,
        )

    def signers(self, path: str, signed: str, data: bytes) -> tuple[bytes | None, bool]:
        """The file of signers at `path` before `data` landed at `signed` (None where there was
        none), and whether it did land: otherwise it is the present file. What was taken back and
        came again landed then: within a change that took it back nobody saw the keys.
        """
        number, present = self._last.get(signed, (0, ""))
        landed = number if present == self.blob(data) else None
        known = reversed(self._signers.get(path, []))
        before = (blob for number, blob in known if landed is None or number < landed)
        blob = next(before, "")
        if blob and blob not in self._keys:
            # One that is too large holds no key.
            self._keys[blob] = self.repository.blobs([blob], MAX_SIGNERS_BYTES).get(blob, b"")
        return self._keys.get(blob), landed is not None

    @property
    def any_signers(self) -> bool:
        """Whether the branch holds a file of signers."""
        return any(known[-1][1] for known in self._signers.values())

    def blob(self, data: bytes) -> str:
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
