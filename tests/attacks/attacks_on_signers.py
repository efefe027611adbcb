"""What is done in the name of a submitter who signs. `lab` has keys; its first campaigns landed
before it had any.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from attack import attack
from attacks_in_git import _next
from signing import SIGNATURES, allow, line_of, make_key, messages, sign, signature
from tamper import read_ledger, reseal, write_ledger
from worlds import commit, land


def signing(root: Path) -> Path:
    """`lab` has a key from now on."""
    key = make_key("lab")
    allow(root / "submissions", "lab", key)
    land(root)
    return key


def signed(root: Path, *names: str) -> Path:
    """A new campaign of `lab`, signed by its key."""
    key = signing(root)
    return sign(_next(root), key, names or SIGNATURES)


def planned(root: Path, number: int = 10, **story: object) -> Path:
    """A new campaign of `lab` of which there is only the plan."""
    folder = _next(root, number, **story)
    for run in folder.glob("run-*"):
        shutil.rmtree(run)
    (folder / "summary.json").unlink()
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(lines[0])
    return folder


def abandoned(folder: Path) -> None:
    """A campaign's ledger ends with the record of who gave it up."""
    ledger = folder / "ledger.jsonl"
    records = read_ledger(ledger)
    end = {"kind": "campaign-abandon", "data": {"reason": "too slow"}}
    write_ledger(ledger, [*records, {**records[-1], **end}])
    reseal(folder, ["ledger"])


@attack("repository", "LED025")
def a_campaign_in_the_name_of_a_submitter_who_signs(root: Path) -> None:
    signing(root)
    _next(root)
    commit(root)


@attack("repository", "LED025")
def a_plan_in_the_name_of_a_submitter_who_signs(root: Path) -> None:
    signing(root)
    planned(root)
    commit(root)


@attack("repository", "LED025")
def a_plan_signed_and_its_closed_ledger_not(root: Path) -> None:
    signed(root, "campaign.sig")
    commit(root)


@attack("repository", "LED025")
def a_campaign_given_up_in_the_name_of_a_submitter_who_signs(root: Path) -> None:
    key = signing(root)
    folder = sign(planned(root), key, ["campaign.sig"])
    land(root)
    abandoned(folder)
    commit(root)


@attack("repository", "LED025")
def a_campaign_given_up_whose_plan_landed_before_there_were_keys(root: Path) -> None:
    folder = planned(root)
    land(root)
    signing(root)
    abandoned(folder)
    commit(root)


@attack("repository", "LED025")
def signed_by_a_key_of_nobody(root: Path) -> None:
    signing(root)
    sign(_next(root), make_key("nobody"))
    commit(root)


@attack("repository", "LED025")
def signed_by_the_key_of_a_rival(root: Path) -> None:
    signing(root)
    rival = make_key("rival")
    allow(root / "submissions", "rival", rival)
    land(root)
    sign(_next(root), rival)
    commit(root)


@attack("repository", "LED025")
def signed_by_a_key_that_only_the_working_tree_has(root: Path) -> None:
    signing(root)
    sign(_next(root), make_key("nobody"))
    commit(root)
    allow(root / "submissions", "lab", make_key("nobody"))


@attack("repository", "LED025")
def signed_by_a_key_that_was_taken_out(root: Path) -> None:
    old = signing(root)
    allow(root / "submissions", "lab", make_key("new"))
    land(root)
    sign(_next(root), old)
    commit(root)


@attack("repository", "LED025")
def landed_with_a_key_that_came_later(root: Path) -> None:
    """Merged all the same, and then the key was made the submitter's."""
    key = signing(root)
    sign(_next(root), make_key("nobody"))
    land(root)
    allow(root / "submissions", "lab", key, make_key("nobody"))
    land(root)


@attack("repository", "LED025")
def the_signature_of_another_plan(root: Path) -> None:
    key = signing(root)
    first = sign(_next(root), key)
    second = sign(_next(root, 11), key, ["ledger.sig"])
    shutil.copy(first / "campaign.sig", second / "campaign.sig")
    commit(root)


@attack("repository", "LED025")
def the_signature_of_an_earlier_head(root: Path) -> None:
    key, folder = signing(root), _next(root)
    ledger = (folder / "ledger.jsonl").read_bytes()
    (folder / "ledger.jsonl").write_bytes(b"".join(ledger.splitlines(keepends=True)[:-1]))
    sign(folder, key)
    (folder / "ledger.jsonl").write_bytes(ledger)
    commit(root)


@attack("repository", "LED025")
def the_signature_of_the_plan_as_that_of_the_end(root: Path) -> None:
    folder = signed(root)
    shutil.copy(folder / "campaign.sig", folder / "ledger.sig")
    commit(root)


@attack("repository", "LED025")
def a_signature_that_was_made_for_something_else(root: Path) -> None:
    """Of the namespace `git`, say, by which the submitter signs what others propose."""
    key, folder = signing(root), _next(root)
    for name, message in messages(folder).items():
        (folder / name).write_bytes(signature(message, key, "git"))
    commit(root)


@attack("repository", "LED025")
def a_page_behind_a_signature(root: Path) -> None:
    folder = signed(root)
    with (folder / "ledger.sig").open("a") as file:
        file.write("faster than theirs\n")
    commit(root)


@attack("repository", "LED025", "SCH004")
def a_giant_signature(root: Path) -> None:
    folder = signed(root)
    (folder / "ledger.sig").write_bytes(b"A" * 20_000)
    commit(root)


@attack("repository", "SUB027")
def a_key_that_comes_with_what_it_signs(root: Path) -> None:
    allow(root / "submissions", "lab", make_key("nobody"))
    commit(root)
    sign(_next(root), make_key("nobody"))
    commit(root)


@attack("repository", "LED025", "SUB027")
def a_key_more_that_comes_with_what_it_signs(root: Path) -> None:
    allow(root / "submissions", "lab", signing(root), make_key("nobody"))
    sign(_next(root), make_key("nobody"))
    commit(root)


@attack("repository", "LED025")
def keys_taken_away_for_the_time_of_a_change(root: Path) -> None:
    signing(root)
    path = root / "submissions/lab/allowed_signers"
    kept = path.read_bytes()
    path.unlink()
    commit(root)
    _next(root)
    commit(root)
    path.write_bytes(kept)
    commit(root)


@attack("repository", "LED025")
def landed_for_a_moment_when_there_were_no_keys(root: Path) -> None:
    """Within a change that was fast-forwarded, and of which nothing but a page was seen."""
    signing(root)
    path = root / "submissions/lab/allowed_signers"
    kept = path.read_bytes()
    path.unlink()
    commit(root)
    folder = _next(root)
    commit(root)
    aside = shutil.move(folder, root.parent / "aside")
    path.write_bytes(kept)
    (root / "README.md").write_text("hello\n")
    land(root)
    shutil.move(aside, folder)
    commit(root)


@attack("repository", "SUB027")
def keys_changed_for_a_moment(root: Path) -> None:
    signing(root)
    path = allow(root / "submissions", "lab", make_key("nobody"))
    commit(root)
    allow(root / "submissions", "lab", make_key("lab"))
    assert path.read_text() == line_of("lab", make_key("lab"))
    (root / "README.md").write_text("hello\n")
    commit(root)


@attack("repository", "SUB007")
def keys_taken_away(root: Path) -> None:
    signing(root)
    (root / "submissions/lab/allowed_signers").unlink()
    commit(root)


def _lines(name: str, line: str) -> None:
    def act(root: Path) -> None:
        path = allow(root / "submissions", "lab", make_key("lab"))
        key = " ".join(make_key("nobody").with_suffix(".pub").read_text().split()[:2])
        path.write_text(path.read_text() + line.format(key=key) + "\n")
        commit(root)

    act.__name__ = name
    attack("repository", "SUB026")(act)


_lines("everybody_as_a_signer", '* namespaces="fourmin" {key}')
_lines("a_certificate_authority_as_a_signer", 'lab cert-authority,namespaces="fourmin" {key}')
_lines("a_key_for_every_purpose", "lab {key}")
_lines("a_second_submitters_key", 'rival namespaces="fourmin" {key}')
