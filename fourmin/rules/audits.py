"""SUB: what lies in audits beside submissions, and in which order it comes there."""

from __future__ import annotations

from collections.abc import Iterator

from fourmin.ledger.audits import AUDITORS_FILE, auditors_in
from fourmin.ledger.challenge import audit_name
from fourmin.ledger.submission import PackageView
from fourmin.results.names import is_dropping
from fourmin.results.places import AUDITS
from fourmin.rules.changes import ChangeView
from fourmin.rules.rule import CHANGE, ERROR, PACKAGE, WARNING, Problem, rule


@rule("SUB028", "auditors-word", ERROR, PACKAGE)
def auditors_word(package: PackageView) -> Iterator[Problem]:
    """A challenge or statement is its auditor's, and of the campaign and ledger that it names.

    What it checks
        Each file of an auditor in `audits`: its form, that it names the folder's auditor, who is
        not the submitter, and the plan and closed ledger of a campaign beside it; that its segments
        are those which plan, ledger and nonce give, and a nonce from the base branch is the first
        beacon after the ledger landed; that a statement answers a challenge of the same auditor;
        and its signature (`ssh-keygen -Y`, namespace `fourmin`, of all but itself as canonical
        JSON) by a key that `rules/auditors` gives the auditor. An auditor without a key there, or
        no ssh-keygen to ask, is a warning: the audit stays claimed.
    Why it is bad
        Whoever may write a statement for himself, has audited nothing.
    Example
        A statement about another campaign, copied and given a new name.
    How to put it right
        Let the auditor make it again: `fourmin audit CAMPAIGN --proof FILE`.
    """
    for one in package.audits:
        if one.wrong:
            yield Problem(one.wrong, path=one.name)
        elif one.unproved:
            yield Problem(one.unproved, path=one.name, severity=WARNING)


@rule("SUB029", "challenge-lands-first", ERROR, CHANGE)
def challenge_lands_first(change: ChangeView) -> Iterator[Problem]:
    """A change brings a statement only after its challenge, and only of a known auditor.

    What it checks
        Files of auditors that the base commit does not have: `rules/auditors` has a key of the
        auditor there, and the challenge of a statement is there too.
    Why it is bad
        A challenge that comes with its answer may have been chosen by it.
    Example
        One change with both files.
    How to put it right
        Have the challenge merged, then the proof made, then the statement merged.
    """
    known = auditors_in(change.repository.read(f"rules/{AUDITORS_FILE}") or b"")
    for one in change.repository.changes:
        folder, _, name = one.path.partition("/")
        auditor, _, base = name.partition("/")
        if folder != AUDITS or not base or one.status != "A" or is_dropping(base):
            continue
        if auditor not in known:
            yield Problem(
                f"the base commit has no key of {auditor} in rules/auditors", path=one.path
            )
        asked = audit_name(auditor, base.partition(".")[0], statement=False)
        if name != asked and change.repository.read(f"{AUDITS}/{asked}") is None:
            yield Problem("the base commit does not have its challenge", path=one.path)
