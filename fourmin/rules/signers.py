"""LED and SUB: who submits, by signatures and the keys that may sign."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fourmin.ledger.signatures import SIGNED, is_signature, read_signers
from fourmin.ledger.submission import PackageView
from fourmin.ledger.view import CampaignView
from fourmin.results.names import is_dropping
from fourmin.results.places import SIGNERS_FILE, SUBMISSIONS
from fourmin.rules.changes import ChangeView
from fourmin.rules.rule import CAMPAIGN, CHANGE, ERROR, NOTE, PACKAGE, Problem, rule


@rule("LED025", "signed-by-submitter", ERROR, CAMPAIGN)
def signed_by_submitter(campaign: CampaignView) -> Iterator[Problem]:
    """Where a submitter has keys, their plans and the ends of their ledgers are signed.

    What it checks
        campaign.sig signs the plan and ledger.sig the last line of a closed or abandoned ledger
        (`ssh-keygen -Y verify`, namespace `fourmin`), by a key that the submitter's
        allowed_signers had in the commit before the one that brought the plan or the ledger to
        the base branch; what has not landed, by a key that it has there now. What landed before
        there were keys needs no signature. Without git, its whole history or ssh-keygen nothing is
        proved, which is a note; with `--base`, `validate` ends with 2. A file of that name that
        is no signature is an error everywhere.
    Why it is bad
        Whoever can propose a change could submit, or abandon, in the name of somebody else.
    Example
        A campaign in the folder of a submitter with keys, signed by a key of somebody else.
    How to put it right
        Sign it: `fourmin submit --signing-key FILE`, or `fourmin abandon --signing-key FILE`.
    """
    for name in SIGNED:
        data = campaign.files.get(name)
        if data is not None and not is_signature(data):
            yield Problem("no signature as ssh-keygen writes it", path=name)
    for name, why in campaign.signing.wrong.items():
        yield Problem(why, path=name)
    if campaign.signing.unproved:
        why = f"not proved who signed: {campaign.signing.unproved}"
        yield Problem(why, severity=NOTE)


@rule("SUB026", "plain-signers", ERROR, PACKAGE)
def plain_signers(package: PackageView) -> Iterator[Problem]:
    """A file of signers holds plain keys of its submitter, for this purpose alone.

    What it checks
        Each line of `<submitter>/allowed_signers` is empty, a comment after `#`, or
        `<submitter> namespaces="fourmin" <kind> <key>` with a comment after it or none: the name of
        the folder, this option and no other, an Ed25519, ECDSA or RSA key (of 3072 bits at least)
        or one of a token (`sk-`). There is at least one key.
    Why it is bad
        A pattern, a certificate authority or a key for every purpose lets others sign.
    Example
        `* cert-authority ssh-ed25519 AAAA...`
    How to put it right
        Write one line a key: the folder's name, `namespaces="fourmin"`, and what the key's .pub
        file holds.
    """
    for name, submitter, data in package.signers:
        if isinstance(data, str):
            yield Problem(f"the file is {data}", path=name)
            continue
        for line, why in read_signers(data, submitter)[1]:
            yield Problem(why, line, path=name)


@rule("SUB027", "signers-alone", ERROR, CHANGE)
def signers_alone(change: ChangeView) -> Iterator[Problem]:
    """A change of a submitter's keys, in any of its commits, does nothing else.

    What it checks
        The paths that differ from the base commit, and the commits since then one by one: where
        an allowed_signers is among them, the change is of this file alone.
    Why it is bad
        Whoever merges it says that these keys are the submitter's. Within another change nobody
        sees that.
    Example
        A campaign, and the key that signs it.
    How to put it right
        Propose the keys for themselves, and the rest once they are merged.
    """
    changed = {one.path: posixpath.basename(one.path) for one in change.repository.changes}
    paths = {path: name for path, name in changed.items() if not is_dropping(name)}
    if [*paths.values()] == [SIGNERS_FILE]:
        return
    for path, name in paths.items():
        if name == SIGNERS_FILE:
            yield Problem("changed together with something else", path=path)
    for commit in change.repository.commits_touching(f"**/{SIGNERS_FILE}"):
        yield Problem(
            f"keys changed by the commit {commit[:12]}, among other things", path=SUBMISSIONS
        )
