"""What a gate found, as annotations of a workflow."""

from __future__ import annotations

from fourmin.base.text import printable
from fourmin.report.gate import CANNOT_TELL, NOT_SLOWER, SLOWER, gate_lines, gate_verdict
from fourmin.report.pair_wording import headline
from fourmin.report.side_by_side import SideBySide
from fourmin.rules.render import annotation
from fourmin.rules.rule import ERROR, NOTE, WARNING

_SEVERITIES = {SLOWER: ERROR, CANNOT_TELL: WARNING, NOT_SLOWER: NOTE}


def render_pair(pair: SideBySide) -> str:
    """An error for what is slower, a warning for what cannot be told, a notice for the rest."""
    notes = (f"note: {printable(note)}" for note in pair.notes)
    lines = [headline("A", pair.a), headline("B", pair.b), *notes]
    if pair.gate is not None:
        title = "fourmin report --fail-if-slower"
        lines += [annotation(_SEVERITIES[how], title, said) for how, said in gate_lines(pair.gate)]
        lines.append(gate_verdict(pair.gate))
    return "\n".join(lines) + "\n"
