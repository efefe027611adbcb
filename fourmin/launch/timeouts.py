"""How long things may take where nodes and workers start, speak and end: every such wait, once.

What a site may have to change is a field of `Timeouts`, given by `fourmin run --timeout
NAME=SECONDS`. The defaults hold for 256 nodes with an image to be pulled and 2,048 imports from
one file system; they only end what would never end, since whatever fails says so by itself.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fourmin.base.errors import FourminError, unknown

COLLECTIVE = "collective"
"""The one that is part of the configuration, as `collective_timeout_seconds`."""

# What nobody has to change. A handshake that comes to nothing is tried again until `join` is over.
HANDSHAKE_SECONDS = 30.0
CONNECT_SECONDS = 3.0
PING_SECONDS = 1.0
TERMINATION_SECONDS = 5.0
"""A cluster that ends a job tells all its processes at once: the command is let speak first."""
IDLE_SECONDS = 10.0
"""How long a GPU may take to become idle: the processes of the run before may still end."""
FIRST_WORD_SECONDS = 10.0
LAST_WORDS_SECONDS = 1.0
"""How long workers are listened to whose agent has ended, until it is known how each did."""
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True)
class Timeouts:
    """Seconds each."""

    join: float = 3600.0
    """For all nodes to come to the command; one that is there first waits as long for it."""
    rejoin: float = 300.0
    """For another in the place of a node that was lost between two runs."""
    look: float = 900.0
    """For all nodes to look at themselves: a large manifest is read from a shared disk."""
    imports: float = 1800.0
    """For all workers to import the training stack and to join each other."""
    silence: float = 60.0
    """Without a word, until a node is taken for lost, and the command by its nodes."""
    end: float = 30.0
    """For the processes of a run to end."""

    @classmethod
    def parse(cls, given: Sequence[str]) -> tuple[Timeouts, float | None]:
        """What NAME=SECONDS each means; that of a collective apart, None where it is not given.

        Raises FourminError for another name or no positive number.
        """
        values = {}
        for one in given:
            name, _, text = one.partition("=")
            if name not in (*NAMES, COLLECTIVE):
                raise unknown(f"no timeout {name!r}", name, (*NAMES, COLLECTIVE))
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = math.nan
            if not 0 < values[name] < math.inf:
                raise FourminError(f"--timeout {one}: {name} takes seconds above 0")
        collective = values.pop(COLLECTIVE, None)
        return cls(**values), collective

    def options(self) -> list[str]:
        """Options of a command line for those that are not the defaults."""
        return [
            f"--timeout={name}={getattr(self, name):g}"
            for name in NAMES
            if getattr(self, name) != getattr(Timeouts, name)
        ]


NAMES = tuple(field.name for field in dataclasses.fields(Timeouts))


class Waiting:
    """Says now and then who is still waited for, at first after ten seconds."""

    def __init__(self, say: Callable[[str], None], total: int, noun: str) -> None:
        self._say, self._total, self._noun = say, total, noun
        self._began = time.monotonic()
        self._next = FIRST_WORD_SECONDS

    def look(self, missing: Sequence[str]) -> None:
        """Say that `missing` are waited for, if it is time."""
        passed = time.monotonic() - self._began
        if missing and passed >= self._next:
            self._next = passed + min(passed, LONGEST_PAUSE_SECONDS)
            of = f"{len(missing)} of {self._total} {self._noun}"
            self._say(f"waiting for {of}: {shortened(missing)}; {passed:.0f} s")


def shortened(names: Sequence[str], most: int = 12) -> str:
    """The first of many names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
