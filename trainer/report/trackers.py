"""Copies the numbers of metrics.jsonl to Weights & Biases and MLflow; training never waits for it.

A service that is slow or away loses only what it should get: the queue is bounded, each error is one warning,
and the end of the run waits for a bounded time. Credentials come from the services' own variables.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from trainer.base.config import TrainerConfig

_LOG = logging.getLogger(__name__)
_MOST_WAITING = 1000  # records; the next ones are dropped
_END_S = 10.0  # for what is waiting at the end of the run
_RUN_TAG = "cloudrec.run"


class Tracker(Protocol):
    """One service, with an open run."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Send the numbers of one record."""
        ...

    def close(self) -> None:
        """Send what is buffered, and end the run."""
        ...


class Trackers:
    """The services that the configuration names.

    Args:
        openers: by name of the service, what opens its run; called in the thread.
    """

    def __init__(self, openers: Mapping[str, Callable[[], Tracker]]) -> None:
        self._openers = openers
        self._queue: queue.Queue[tuple[Mapping[str, float], int] | None] = queue.Queue(_MOST_WAITING)
        self._dropped = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._openers:
            self._thread = threading.Thread(target=self._run, name="trackers", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, numbers: Mapping[str, float], step: int) -> None:
        """Queue the numbers of one record; drop them if the services are too slow."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait((numbers, step))
        except queue.Full:
            self._dropped += 1

    def close(self, *, within_s: float = _END_S) -> None:
        """Wait until all is sent, for a bounded time."""
        if self._thread is None:
            return
        self._ending.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            names = " and ".join(self._openers)
            _LOG.warning("%s did not take the last records in %g s; metrics.jsonl has them", names, within_s)
        if self._dropped:
            _LOG.warning("%d records were not sent to trackers; metrics.jsonl has them", self._dropped)

    def _run(self) -> None:
        opened = {name: found for name in self._openers if (found := self._open(name)) is not None}
        while not (self._ending.is_set() and self._queue.empty()):
            try:
                record = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            if record is not None:
                for name in list(opened):
                    if not self._try(name, opened[name].log, *record):
                        del opened[name]
        for name, tracker in opened.items():
            self._try(name, tracker.close)

    def _open(self, name: str) -> Tracker | None:
        try:
            return self._openers[name]()
        except ImportError:
            _LOG.warning("%s is not installed: nothing is sent to it (pip install %s)", name, name)
        except Exception as error:  # noqa: BLE001 - a service's client may raise anything
            _LOG.warning("%s: nothing is sent to it: %s", name, _line(error))
        return None

    def _try(self, name: str, call: Callable[..., None], *arguments: object) -> bool:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - as above
            _LOG.warning("%s: nothing more is sent to it: %s", name, _line(error))
            return False
        return True


def trackers_of(config: TrainerConfig) -> Trackers:
    """Return the services that a configuration names."""
    folder = Path(config.output_dir)
    project, uri, experiment = config.wandb_project, config.mlflow_uri, config.mlflow_experiment
    name = os.environ.get("CLOUDREC_RUN") or folder.absolute().name
    openers: dict[str, Callable[[], Tracker]] = {}
    if project:
        openers["wandb"] = lambda: _Wandb(project, name, folder)
    if uri:
        openers["mlflow"] = lambda: _Mlflow(uri, experiment, name)
    return Trackers(openers)


class _Wandb:
    """A run at Weights & Biases; a restart of the trainer continues it, by its id."""

    def __init__(self, project: str, name: str, folder: Path) -> None:
        import wandb  # noqa: PLC0415 - an optional package

        folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(console="off", disable_git=True, init_timeout=60.0)
        self._run: Any = wandb.init(
            project=project, name=name, id=name, resume="allow", dir=str(folder), settings=settings
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Send numbers; steps of a resumed run may repeat, so the step is another number."""
        self._run.log({**numbers, "step": step})

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class _Mlflow:
    """A run at MLflow; a restart of the trainer continues the one with its name as tag."""

    def __init__(self, uri: str, experiment: str, name: str) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415 - an optional package
        from mlflow.tracking import MlflowClient  # noqa: PLC0415 - as above

        self._metric = Metric
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(experiment)
        where = known.experiment_id if known else self._client.create_experiment(experiment)
        found = self._client.search_runs([where], f"tags.`{_RUN_TAG}` = '{name}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            run = self._client.create_run(where, run_name=name, tags={_RUN_TAG: name})
            self._id = run.info.run_id

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Send numbers."""
        now = int(time.time() * 1000)
        metrics = [self._metric(key, value, now, step) for key, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._id)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
