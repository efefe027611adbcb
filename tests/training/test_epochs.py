"""What happens in which order over a run's epochs; step, loader and log only tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fourmin.base.errors import NOT_CONVERGED, FourminError
from fourmin.datasets.manifest import SPLITS, ImageRow, Manifest
from fourmin.datasets.manifest_image import share_manifest
from fourmin.recipe.presets import load_preset
from fourmin.training import epochs, session
from fourmin.training.data.order import (
    OrderDigest,
    digest_of_order,
    epoch_permutation,
    rank_share,
)

SAMPLES, BATCH, STEPS, SEED = 27, 8, 3, 77


@dataclass
class Told:
    """What was asked of whom, in order, and what the step is to answer."""

    accuracies: list[float]
    losses: dict[int, float] = field(default_factory=dict)
    """By step, where it is not 1."""
    order: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    micro_batches: list[int] = field(default_factory=list)
    steps: int = 0

    def note(self, what: str, answer: Any = None) -> Any:
        self.order.append(what)
        return answer

    # The log.

    def start(self, key: str, value: object = None, /, **_: object) -> None:
        self.note(key)

    end = point = start

    # The loader.

    def train_epoch(self, epoch: int) -> Iterator[Any]:
        order = epoch_permutation(SEED, epoch, SAMPLES)
        for step in range(STEPS):
            for indices in rank_share(order, step, BATCH, 0, 1, 2):
                yield SimpleNamespace(images=None, labels=None, indices=torch.from_numpy(indices))

    def begin_evaluation(self, epoch: int) -> None:
        """Nothing is logged of it."""

    def evaluate(self, epoch: int) -> list[Any]:
        return self.note("the validation images", [])

    # The step.

    def __call__(self, micro_batches: list[Any]) -> tuple[torch.Tensor, Any]:
        self.steps += 1
        self.micro_batches.append(len(micro_batches))
        loss = torch.tensor(self.losses.get(self.steps, 1.0))
        return loss, SimpleNamespace(seconds=lambda: 0.0)

    @property
    def performed(self) -> int:
        return self.steps


def run_of(told: Told, monkeypatch: pytest.MonkeyPatch, rank: int = 0, **changes: Any) -> Any:
    """The epochs of a run that is evaluated after every second one, and its target is 0.5."""
    settings = {"global_batch_size": BATCH, "gradient_accumulation_steps": 2, "max_epochs": 5}
    configuration = replace(load_preset("digits"), **{**settings, **changes})
    job = SimpleNamespace(
        configuration=configuration, seed=SEED, restart_epoch=0, replay=False,
        segments=(), segment_steps=None,
        dataset={"train_samples": SAMPLES, "eval_samples": 10},
    )  # fmt: skip
    benchmark = SimpleNamespace(quality_target=0.5, evaluates_after=lambda epoch, _: epoch % 2 == 0)
    schedule: Any = lambda step: 0.1  # noqa: E731
    schedule.steps_of = lambda epoch: STEPS
    schedule.steps_before = lambda epoch: (epoch - 1) * STEPS
    run = SimpleNamespace(
        job=job, benchmark=benchmark, schedule=schedule, log=told, step=told, order=OrderDigest(),
        place=SimpleNamespace(rank=rank, world_size=1, device=torch.device("cpu")),
        heartbeat=SimpleNamespace(through=lambda batches, _: iter(batches)),
        precision=SimpleNamespace(name="fp32", skipped_steps=0, loss_scale=1.0),
        model=torch.nn.Linear(1, 1), optimizer=None, states=None,
        reducer=SimpleNamespace(compression=None),
        pipeline=None,
        checkpoints=SimpleNamespace(
            writes=True,
            save=lambda epoch, state: told.note(f"checkpoint {epoch}", state())
        ),
    )  # fmt: skip
    accuracies = iter(told.accuracies)
    stubs = {
        "average_bn_statistics": lambda *_: told.note("statistics averaged"),
        "assert_same_on_all_ranks": lambda *_: None,
        "evaluate": lambda *_: told.note("evaluated", (round(next(accuracies) * 100), 100)),
        "mean_over_ranks": lambda losses, _: losses.tolist(),
        "gather": lambda own, _: [own],
        "pack": lambda *_: told.note("state taken"),
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(epochs, name, stub)
    seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda n: (told.seeds.append(n), seed(n))[1])
    return epochs.Epochs(run, told), run


TRAINED = ["epoch_start", "epoch_stop", "tracked_stats"]
FIRST = ["epoch_start", "epoch_stop", "step_loss", "tracked_stats"]
EVALUATED = [
    "statistics averaged", "eval_start", "the validation images", "evaluated", "weights_digest",
    "eval_accuracy", "eval_stop",
]  # fmt: skip


def saved(epoch: int) -> list[str]:
    return ["state taken", f"checkpoint {epoch}"]


def test_it_ends_with_the_evaluation_that_reaches_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told([0.4, 0.5])
    made, run = run_of(told, monkeypatch)
    assert made.train()
    # A checkpoint holds what was evaluated: it comes after the evaluation, before the next epoch.
    assert told.order == [*FIRST, *TRAINED, *EVALUATED, *saved(2), *TRAINED, *TRAINED, *EVALUATED]
    assert told.steps == made.attempted == 4 * STEPS
    assert set(told.micro_batches) == {2}
    assert run.order.hexdigest() == digest_of_order(SEED, range(1, 5), SAMPLES, BATCH)


def test_an_evaluation_is_begun_with_the_last_steps_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After epochs 2 and 4 of 5, each of 3 steps; a replay is not evaluated."""
    told = Told([0.1, 0.1])
    made, run = run_of(told, monkeypatch)
    monkeypatch.setattr(epochs, "READ_AHEAD", 2)
    begun_at: list[int] = []
    monkeypatch.setattr(told, "begin_evaluation", lambda epoch: begun_at.append(told.steps))
    made.train()
    assert begun_at == [STEPS + 1, STEPS + 2, 3 * STEPS + 1, 3 * STEPS + 2]
    begun_at.clear()
    run.job.replay, run.job.restart_epoch = True, 1
    epochs.Epochs(run, made._loader).train()
    assert begun_at == []


def test_it_ends_with_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told([0.1, 0.49])
    made, _ = run_of(told, monkeypatch, max_epochs=4)
    assert not made.train()
    assert told.order.count("epoch_start") == 4
    assert [what for what in told.order if what.startswith("checkpoint")] == ["checkpoint 2"]


def test_max_steps_end_an_epoch_early_and_it_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told([0.1, 0.1])
    made, run = run_of(told, monkeypatch, max_steps=2 * STEPS + 2)
    assert not made.train()
    assert told.order == [*FIRST, *TRAINED, *EVALUATED, *saved(2), *TRAINED, *EVALUATED]
    assert told.steps == 2 * STEPS + 2
    digest = digest_of_order(SEED, range(1, 4), SAMPLES, BATCH, max_steps=2 * STEPS + 2)
    assert run.order.hexdigest() == digest


def test_every_rank_draws_its_own_random_numbers_anew_in_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[int] = []
    for rank in range(3):
        told = Told([0.1, 0.1])
        run_of(told, monkeypatch, rank, max_epochs=4)[0].train()
        assert len(told.seeds) == 4
        found += told.seeds
    assert len(set(found)) == 12
    told = Told([0.1, 0.1])
    made, run = run_of(told, monkeypatch, 1, max_epochs=4)
    run.job.restart_epoch = 2
    epochs.Epochs(run, made._loader).train()
    assert told.seeds == found[6:8], "after a restart they are those of the epoch"


def test_a_loss_that_is_not_finite_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told([0.1], losses={STEPS + 2: float("nan")})
    made, _ = run_of(told, monkeypatch)
    with pytest.raises(FourminError, match="step 2 of epoch 2") as caught:
        made.train()
    assert caught.value.exit_code == NOT_CONVERGED
    assert told.order[-1] == "tracked_stats", "what happened is logged first"


def test_a_manifest_of_other_images_is_refused_before_the_clock(tmp_path: Path) -> None:
    rows = [ImageRow(split, "a/1.png", 9, bytes(32), 8, 8) for split in SPLITS]
    Manifest.from_rows(rows).write(tmp_path / "text")
    place: Any = SimpleNamespace(local_rank=0, ranks_per_node=1)
    registered = share_manifest(tmp_path / "text", tmp_path / "image").facts()
    job: Any = SimpleNamespace(
        manifest=tmp_path / "text", manifest_image=tmp_path / "image", dataset=registered
    )
    assert session._read_manifest(job, place).facts() == registered
    job.dataset = registered | {"eval_digest": "0" * 64}
    with pytest.raises(FourminError, match="does not list the images of this campaign"):
        session._read_manifest(job, place)


def test_the_data_is_touched_only_when_the_clock_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first record to the last sync, on rank 0."""
    told = Told([])
    place = SimpleNamespace(rank=0, world_size=1, device=torch.device("cpu"))
    run = SimpleNamespace(
        place=place, log=told, model=None, job=None, manifest=None, order=OrderDigest(),
        energy=SimpleNamespace(
            start=lambda: told.note("energy counted from here"),
            stop=lambda: told.note("and to here"), log=lambda *_: None,
        ),
        heartbeat=SimpleNamespace(rest=lambda: None, stop=lambda: told.note("the command hears")),
        reducer=SimpleNamespace(counters=None), pipeline=None, states=None,
        checkpoints=SimpleNamespace(close=lambda: told.note("closed")),
    )  # fmt: skip
    told.sync = lambda: told.note("synced")  # type: ignore[attr-defined]
    loader = SimpleNamespace(read_from=lambda folder: told.note(f"read from {folder}"))
    stubs = {
        "set_backends": lambda *_: None,
        "assert_known_sum": lambda: None,
        "EventLogWriter": lambda *_, **__: told,
        "log_submission": lambda *_: None,
        "log_hyperparameters": lambda *_: None,
        "log_clocks": lambda *_: None,
        "log_communication": lambda *_: None,
        "_read_manifest": lambda *_: told.note("manifest read"),
        "assemble": lambda *_: told.note("assembled", run),
        "weights_digest": lambda _: "",
        "assert_same_on_all_ranks": lambda *_: None,
        "barrier": lambda _: told.note("barrier"),
        "numbers_of_ranks": lambda values, _: torch.zeros(1, 1).numpy(),
        "Heartbeat": lambda *_: None,
        "_loader": lambda _: told.note("loader built", loader),
        "refuse_shared_stage": lambda *_: None,
        "stage_dataset": lambda *_: told.note("images copied", Path("there")),
        "remove_staged": lambda *_: told.note("copy removed"),
        "Epochs": lambda *_: SimpleNamespace(
            train=lambda: told.note("trained", True),
            exposed_seconds=[],
            attempted=0,
            close=lambda: told.note("batches made ahead are thrown away"),
        ),
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(session, name, stub)
    monkeypatch.setattr(session.process_group, "init_process_group", lambda *_: place)
    monkeypatch.setattr(session.process_group, "destroy", lambda: told.note("left"))
    job: Any = SimpleNamespace(
        configuration=load_preset("digits"), ruleset="1.0", stage=Path("stage"), restart=0,
        dataset={"train_samples": 1437}, events_log=None, imports_seconds=7.0,
        profile=None,
    )  # fmt: skip
    timeouts: list[float] = []
    monkeypatch.setattr(session, "set_timeout", timeouts.append)
    control: Any = SimpleNamespace(ask_to_start=lambda: told.note("the command records the start"))
    session.take_part(job, control)
    assert told.order == [
        "init_start", "manifest read", "assembled", "loader built", "initial_weights_digest",
        "barrier", "the command records the start", "barrier", "init_stop",
        "energy counted from here", "run_start", "images copied", "read from there", "trained",
        "run_stop", "the command hears", "and to here", "data_order_digest", "synced", "closed",
        "batches made ahead are thrown away", "left", "copy removed",
    ]  # fmt: skip
    # Who imports may be late for longer than who trains.
    assert timeouts == [load_preset("digits").collective_timeout_seconds]
