"""A challenged campaign is trained again from its kept states; what was not trained is found."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import PRACTICE, fourmin
from signing import make_key
from tamper import apply, reseal

from fourmin.base.canonical import canonical_bytes
from fourmin.base.errors import FourminError
from fourmin.campaign import challenge as auditing
from fourmin.campaign import replay
from fourmin.campaign.audit import GROWTH, TOLERANCE, train
from fourmin.campaign.proof import prepare_proof, unpack
from fourmin.launch.local import LocalLauncher
from fourmin.ledger.challenge import CLOSE, segments_of, states_of

EPOCHS = 4
TRAINED = [*PRACTICE, "--procs-per-node", "1", "--runs", "1", "--max-steps", "88", "--set",
           "deterministic=true"]  # fmt: skip


@dataclass
class Trained:
    """A campaign of one run and its states, and where an auditor works."""

    folder: Path
    states: Path
    home: Path

    def state(self, epoch: int) -> Path:
        (found,) = self.states.glob(f"*/run-1/epoch-{epoch}.state")
        return found

    def copy(self, to: Path) -> Trained:
        for part in (self.folder, self.states):
            shutil.copytree(part, to / part.name)
        return Trained(to / self.folder.name, to / self.states.name, to)

    def challenge(self) -> Path:
        asked = self.audit("--challenge", "--signing-key", str(make_key("aud")))
        assert asked.returncode == 0, asked.stderr
        (path,) = (self.home / "audits" / "aud").iterdir()
        return path

    def prove(self) -> Any:
        return fourmin(
            "prove", str(self.folder), "--challenge", str(self.challenge()), "--states",
            str(self.states), "-o", str(self.home / "proof.tar"), state=self.home,
        )  # fmt: skip

    def audit(self, *options: str) -> Any:
        return fourmin(
            "audit", str(self.folder), "--auditor", "aud", "--audits", str(self.home / "audits"),
            *options, state=self.home,
        )  # fmt: skip

    def verdicts(self, code: int) -> tuple[str, dict[str, str]]:
        done = self.audit("--proof", str(self.home / "proof.tar"), "--json")
        assert done.returncode == code, done.stderr
        told = json.loads(done.stdout)
        return told["outcome"], {one["name"]: one["verdict"] for one in told["comparisons"]}

    def put(self, epoch: int, data: bytes) -> None:
        """Another training's state as this one's, in the log as well, everything made anew."""
        _, header, elements = data.split(b"\n", 2)
        own = json.loads(self.state(max(1, epoch)).read_bytes().split(b"\n", 2)[1])
        said = {**own, "progress": json.loads(header)["progress"], "epoch": epoch}
        made = b"fourmin-state-v1\n" + canonical_bytes(said) + b"\n" + elements
        if epoch:
            self.state(epoch).write_bytes(made)
        digest = hashlib.sha256(made).hexdigest()
        edit = {"key": "state", "nth": epoch, "set": "/value/sha256", "to": digest}
        apply(self.folder, [{"file": "run-1/events.log", **edit}])
        reseal(self.folder, ["results", "summary", "restarts", "ledger"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Trained]:
    """Two of different seeds."""
    found = []
    for seed in ("1", "2"):
        home = tmp_path_factory.mktemp("trained")
        options = ["--seed", seed, "--results-dir", str(home / "r"), "--keep-states"]
        done = fourmin("run", *TRAINED, *options, str(home / "states"), state=home)
        assert done.returncode == 0, done.stderr
        found.append(Trained(next((home / "r").iterdir()), home / "states", home))
    return found[0], found[1]


@pytest.fixture
def honest(made: tuple[Trained, Trained], tmp_path: Path) -> Trained:
    return made[0].copy(tmp_path)


def test_what_was_trained_is_trained_again(honest: Trained) -> None:
    packed = honest.prove()
    assert packed.returncode == 0, packed.stderr
    size = (honest.home / "proof.tar").stat().st_size
    assert f"packing {EPOCHS} states, {size / 1e6:,.1f} MB" in packed.stderr
    outcome, told = honest.verdicts(0)
    assert outcome == "audited"
    assert told == {
        "run 1, state 0": "same",
        f"run 1, {EPOCHS} segments": "same",
        "run 1, correct answers": "same",
    }


@pytest.mark.parametrize("epoch", [3, EPOCHS])
def test_a_state_of_another_training_is_found(
    epoch: int, honest: Trained, made: tuple[Trained, Trained]
) -> None:
    honest.put(epoch, made[1].state(EPOCHS).read_bytes())
    assert honest.prove().returncode == 0
    outcome, told = honest.verdicts(1)
    assert (outcome, told[f"run 1, {EPOCHS} segments"]) == ("differs", "different")


def test_weights_that_were_trained_before_are_found(
    honest: Trained, made: tuple[Trained, Trained]
) -> None:
    honest.put(0, made[1].state(EPOCHS).read_bytes())
    assert honest.prove().returncode == 0
    outcome, told = honest.verdicts(1)
    assert (outcome, told["run 1, state 0"]) == ("differs", "different")


def test_states_that_are_not_those_of_the_log(
    honest: Trained, made: tuple[Trained, Trained], tmp_path: Path
) -> None:
    shutil.copy(made[1].state(2), honest.state(2))
    packed = honest.prove()
    assert (packed.returncode, (tmp_path / "proof.tar").exists()) == (2, False)
    assert "run-1/epoch-2.state is not the state of the log" in packed.stderr
    honest.state(2).unlink()
    shutil.rmtree(tmp_path / "audits")
    assert "1 of 4 states are not in" in honest.prove().stderr


def tar_of(path: Path, **members: Any) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, str(content)
                tar.addfile(info)
    return path


def test_a_proof_that_is_something_else_is_refused(honest: Trained, tmp_path: Path) -> None:
    view = auditing.load_closed(honest.folder)
    asked = {"segments": segments_of(view, "")}
    into = tmp_path / "into"
    wrong = [
        ({"../../evil": b"x"}, "which nobody asked for"),
        ({"run-1/epoch-2.state": Path("/etc/passwd")}, "which nobody asked for"),
        ({"run-1/epoch-2.state": b"x"}, "is not the state of the log"),
        ({"run-1/epoch-2.state": b"x" * (4 << 20)}, "which nobody asked for"),
        ({}, "lacks 4 states"),
    ]
    for members, why in wrong:
        with pytest.raises(FourminError, match=why):
            unpack(tar_of(tmp_path / "t.tar", **members), asked, view, into)
    (tmp_path / "t.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(FourminError, match="is no proof"):
        unpack(tmp_path / "t.tar", asked, view, into)
    assert not (tmp_path / "evil").exists()


def test_another_kind_of_device_comes_close_and_no_nearer(
    honest: Trained, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """8 steps of each segment from its start, with other instructions; and trained from another
    seed, or from another state, by five times the tolerance at least."""
    view = auditing.load_closed(honest.folder)
    asked = {"segments": segments_of(view, "")}
    prepare_proof(asked, view, honest.states).pack(tmp_path / "proof.tar")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setattr(replay, "_same_kind", lambda *_: False)
    prepared = replay.prepare_proof_audit(view, asked, None, None)
    assert prepared.steps == 8
    found = prepared.replay(tmp_path / "proof.tar", lambda _: None)
    assert found.outcome == CLOSE, found
    assert len(found.comparisons) == EPOCHS + 2

    ((run, here),) = prepared.runs.values()
    claimed = states_of(run.timeline)[3]["step_loss"]
    shutil.copytree(honest.states, tmp_path / "own")
    moved = tmp_path / "own" / view.digest / "run-1"
    data = (moved / "epoch-1.state").read_bytes()
    (moved / "epoch-2.state").write_bytes(data.replace(b'"epoch":1', b'"epoch":2', 1))
    seed = dataclasses.replace(run.facts, seed=run.facts.seed + 1)
    launcher = LocalLauncher()
    for facts, starts in ((seed, honest.states), (run.facts, tmp_path / "own")):
        ours = train(
            facts, here, prepared.data, prepared.system, launcher, segments=(3,),
            segment_steps=8, starts=starts,
        )  # fmt: skip
        losses = states_of(ours)[3]["step_loss"]
        off = [abs(a - b) / b for a, b in zip(claimed, losses, strict=True)]
        print("OFF", off)
        assert max(one / (TOLERANCE * GROWTH**step) for step, one in enumerate(off)) > 5
    launcher.close()
