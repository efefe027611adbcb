"""Whether a campaign is signed by its submitter, as the history of a base branch tells.

The keys are those of `allowed_signers` in the commit before the one that brought the plan or the
ended ledger, so that they may be changed later; for what has not landed, the branch's own. So a
change never brings the keys that it is signed by.
"""

from __future__ import annotations

from fourmin.base.errors import FourminError
from fourmin.ledger.landings import Landings
from fourmin.ledger.signatures import NOT_SIGNED, SIGNED, Signing, message, refusal
from fourmin.ledger.view import CampaignView
from fourmin.results.places import SIGNERS_FILE


def messages(campaign: CampaignView) -> dict[str, bytes]:
    """What a submitter signs of a campaign as it is, by the signature's name."""
    heads = ["", campaign.head] if campaign.history.ended else [""]
    return {name: message(campaign.digest, head) for name, head in zip(SIGNED, heads, strict=False)}


def signing_of(campaign: CampaignView, landings: Landings, strict: bool = False) -> Signing:
    """What the signatures of a campaign among submissions are worth; none is required where its
    submitter had no `allowed_signers`.

    With `strict`, what has not landed is judged as well, and where signatures cannot be looked at
    FourminError is raised.
    """
    folder, levels = landings.repository.relative(campaign.path), len(campaign.place or ())
    names = [] if folder is None else folder.split("/")
    if len(names) < levels:
        return NOT_SIGNED
    *above, submitter = names[: len(names) - levels + 1]
    signers = "/".join((*above, submitter, SIGNERS_FILE))
    proved, wrong, unproved = False, {}, ""
    try:
        for name, signed in messages(campaign).items():
            file = SIGNED[name]
            data = campaign.files.get(file) or b""
            keys, landed = landings.signers(signers, f"{folder}/{file}", data)
            proved = keys is not None  # the last one decides
            if keys is None:
                continue
            why = refusal(keys, submitter, signed, campaign.files.get(name))
            if why and (landed or strict):
                wrong[name] = why
            elif why:  # this clone's base branch may be an old one
                unproved = f"{file} has not landed here, and {name} is {why}"
    except FourminError as error:
        if strict:
            raise
        unproved = error.what
    return Signing(proved and not wrong and not unproved, wrong, unproved)
