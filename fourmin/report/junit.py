"""What a gate found, as JUnit's XML: a test case for each quantity, and one for the target."""

from __future__ import annotations

from xml.etree import ElementTree

from fourmin.report.gate import CANNOT_TELL, SLOWER, gate_lines, gate_verdict
from fourmin.report.pair_wording import conclusion, headline
from fourmin.report.side_by_side import SideBySide
from fourmin.rules.junit import document


def render_pair(pair: SideBySide) -> str:
    """What is slower fails, what cannot be told is skipped; what else is said is the output."""
    suite = ElementTree.Element("testsuite", name="fourmin report --fail-if-slower")
    if pair.gate is not None:
        suite.set("name", gate_verdict(pair.gate))
        for how, said in gate_lines(pair.gate):
            name, _, text = said.partition(": ")
            case = ElementTree.SubElement(suite, "testcase", classname="fourmin.gate", name=name)
            if how == SLOWER:
                ElementTree.SubElement(case, "failure", message=text, type=how)
            elif how == CANNOT_TELL:
                ElementTree.SubElement(case, "skipped", message=text)
    told = [headline("A", pair.a), headline("B", pair.b), *conclusion(pair)]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(told)
    return "\n".join(document(suite)) + "\n"
