"""`fourmin run --tensorboard DIR`: the usual scalars, while the campaign goes on.

They are written by the command from the event log's records, in its own process: workers and
clock know nothing of it. A folder for each campaign, and in it one for each run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourmin.base.files import ensure_writable_folder
from fourmin.base.installation import install
from fourmin.base.mishaps import told
from fourmin.campaign.events import CampaignOpened, Event, RecordLogged, RunFinished, RunStarting
from fourmin.cli.output import stderr
from fourmin.log import keys

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

LOSS = "loss/train"
ACCURACY = "accuracy/validation"
LEARNING_RATE = "learning_rate"
THROUGHPUT = "throughput/images_per_second"
EXPOSED = "communication/exposed_ms"
MINUTES = "run/minutes"

FLUSH_SECONDS = 2
"""How late what was logged may show; a thread of the writer's own does it."""

_OF_AN_EPOCH = {
    "train_loss": LOSS,
    "learning_rate": LEARNING_RATE,
    "throughput": THROUGHPUT,
    "exposed_ms_median": EXPOSED,
}


class TensorBoard:
    """An observer of a campaign that writes event files for TensorBoard.

    Scalars stand at optimizer steps and at the time of the record. Whatever fails while a campaign
    runs ends the writing, with a line on standard error, and not the campaign.
    """

    def __init__(self, folder: Path) -> None:
        """Raises FourminError without the package `tensorboard`, or a folder to write to."""
        with told(
            "--tensorboard needs the package tensorboard",
            f"{install('tensorboard')}, or run without --tensorboard",
            ImportError,
        ):
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        ensure_writable_folder(folder, "TensorBoard folder")
        self._folder = folder
        self._event, self._summary, self._open = Event, Summary, EventFileWriter
        self._writer: EventFileWriter | None = None
        self._step = 0
        self._works = True

    def take(self, event: Event) -> None:
        """Write what of it is a scalar, unless something failed before; the first failure is told.

        Each run, and each further attempt, has its own folder. What is trained again after a
        restart stands at the same steps once more.
        """
        if not self._works:
            return
        try:
            self._take(event)
        except Exception as error:
            self._works = False
            stderr().print(f"nothing more is written for TensorBoard: {error}")

    def _take(self, event: Event) -> None:
        if isinstance(event, CampaignOpened):
            self._campaign = Path(event.campaign).name
        elif isinstance(event, RunStarting):
            again = f"-attempt-{event.attempt}" if event.attempt > 1 else ""
            self._step = 0
            self._close()
            self._begin(f"run-{event.run}{again}")
        elif isinstance(event, RecordLogged):
            self._write(self._scalars(event), event.time_ms)
        elif isinstance(event, RunFinished):
            self._write({MINUTES: event.minutes}, None)
            self._close()

    def _scalars(self, record: RecordLogged) -> dict[str, Any]:
        if record.key == keys.TRACKED_STATS and isinstance(record.value, dict):
            steps = record.value.get("optimizer_steps")
            self._step = steps if isinstance(steps, int) else self._step
            return {tag: record.value.get(name) for name, tag in _OF_AN_EPOCH.items()}
        return {ACCURACY: record.value} if record.key == keys.EVAL_ACCURACY else {}

    def _begin(self, run: str) -> None:
        folder = self._folder / self._campaign / run
        self._writer = self._open(str(folder), flush_secs=FLUSH_SECONDS)

    def _write(self, scalars: Mapping[str, Any], time_ms: float | None) -> None:
        """Queue the scalars that are numbers, at the run's step and a wall clock time."""
        values = [
            self._summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if isinstance(value, (int, float))
        ]
        if values and self._writer is not None:
            seconds = time.time() if time_ms is None else time_ms / 1000
            summary = self._summary(value=values)
            event = self._event(wall_time=seconds, step=self._step, summary=summary)
            self._writer.add_event(event)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
