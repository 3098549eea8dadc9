"""Evaluations between steps: the metrics on the test split, and the time to target_auc."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from trainer.base.errors import DatasetError
from trainer.data.device.checks import DeviceChecks
from trainer.data.device.stream import DeviceStream
from trainer.data.source import ArraySource, EpochPart
from trainer.report.task_metrics import TaskMetrics
from trainer.retrieval.recall import RecallMeter, joined, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from torch import Tensor

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.data.batch import Batch
    from trainer.data.checks import BatchChecks
    from trainer.data.source import SampleSource
    from trainer.loop.learner import Learner
    from trainer.loop.progress import Progress
    from trainer.loop.session.course import Course
    from trainer.models.protocol import RetrievalModel
    from trainer.report.ledger import GoodputLedger
    from trainer.report.report import Reporter
    from trainer.retrieval.items import Items

EVALUATION_BATCHES = 4  # an evaluation batch is this many training batches, unless set


@dataclass(kw_only=True)
class Evaluator:
    """Scores the whole test split over all ranks; every method is collective."""

    config: TrainerConfig
    world: World
    dataset: SampleSource
    learner: Learner
    checks: BatchChecks
    reporter: Reporter
    ledger: GoodputLedger
    device: torch.device | None = None  # on which batches are made; None: on the CPU
    items: Items | None = None  # for a model of retrieval
    _last: tuple[int, dict[str, Any]] | None = None  # step and metrics of the last evaluation

    def evaluate(self, course: Course) -> dict[str, Any]:
        """Return the metrics after this step and report them; a repeated call for a step returns the same."""
        started = time.perf_counter()
        result = self._score_step(course.progress.step)
        self.ledger.spent.evaluation += time.perf_counter() - started
        self._note_target(course, result["auc"])
        return result

    def target_reached(self, progress: Progress) -> bool:
        """Whether an evaluation, of this attempt or an earlier one, has reached target_auc."""
        return target_reached(self.config, progress)

    def _score_step(self, step: int) -> dict[str, Any]:
        if self._last is None or self._last[0] != step:
            started = time.perf_counter()
            result = self._score()
            self.reporter.record("eval", step, **result, seconds=time.perf_counter() - started)
            self.reporter.say(f"step {step}: {_spell(result)}")
            for task, metrics in result.get("tasks", {}).items():
                self.reporter.say(f"  {task}: {_spell(metrics)}")
            self._last = (step, result)
        return self._last[1]

    def _score(self) -> dict[str, Any]:
        metrics = TaskMetrics(self.learner.shape.tasks, self.world.device)
        model = self.learner.kind.retrieval
        if model is not None and self.items is not None:
            recalls = self._retrieve(model, metrics, self.items)
            return {**metrics.compute(self.world.control), **recalls}
        for logits, labels in self.learner.score(self._batches(self.device)):
            metrics.update(logits, labels)
        return metrics.compute(self.world.control)

    def _batches(self, device: torch.device | None) -> Iterator[Batch]:
        """Yield the test split, checked; batches are made on the device if there is one.

        Raises:
            DatasetError: a value is out of range; of batches that are made on a device, after the last one.
        """
        part = EpochPart(
            batch_size=self.config.eval_batch_size or EVALUATION_BATCHES * self.config.batch_size,
            rank=self.world.rank,
            world_size=self.world.size,
            seed=0,
            epoch=0,
            start_sample=0,
            shuffle=False,
        )
        if device is None or not isinstance(self.dataset, ArraySource):
            yield from self.checks.stream(self.dataset.batches("test", **part))
            return
        checks = DeviceChecks(self.checks, device)
        yield from checks.stream(DeviceStream(self.dataset.split("test"), device, **part))
        if checks.has_failed():
            for _ in self.checks.stream(self.dataset.batches("test", **part)):
                pass  # until the first bad value, which the CPU names
            raise DatasetError(
                f"{device} found a value out of range in the test split, but not when it was read again; "
                "look for faults of this machine's memory, disk and GPU"
            )

    def _retrieve(self, model: RetrievalModel, metrics: TaskMetrics, items: Items) -> dict[str, float | None]:
        """Return recall@k, and add the rows to the other metrics."""
        limits = self.config.recall_at
        meter = RecallMeter(items, limits)
        for batch, outputs in self.learner.outputs(self._batches(None)):
            metrics.update(model.scores(outputs), batch.labels)
            meter.update(model.towers(outputs)[0], items.ids_of(batch), batch.labels)
        vectors = item_vectors(self.learner, model, items, self.world, self.config)
        return named(limits, self.world.sum(meter.hits(vectors)))

    def _note_target(self, course: Course, auc: float | None) -> None:
        """Record in `progress` when target_auc was first reached, which is MLPerf's time to train."""
        wanted, progress = self.config.target_auc, course.progress
        if wanted is None or auc is None or auc < wanted or target_reached(self.config, progress):
            return
        training_s = course.clock.training_s
        progress.target = {
            "auc": auc,
            "step": progress.step,
            "samples": progress.samples,
            "seconds": training_s,
        }
        self.reporter.say(f"step {progress.step}: target_auc {wanted} reached after {training_s:.1f} s")


def item_vectors(
    learner: Learner, model: RetrievalModel, items: Items, world: World, config: TrainerConfig
) -> Tensor:
    """Return the vectors of all items [items, width] on every rank; collective."""
    size = config.eval_batch_size or EVALUATION_BATCHES * config.batch_size
    stream = items.batches(batch_size=size, rank=world.rank, world_size=world.size)
    parts = []
    for batch, outputs in learner.outputs(stream):
        own = model.towers(outputs)[1].float().cpu()
        total = batch.global_size
        cuts = [total * rank // world.size for rank in range(world.size + 1)]
        sizes = [high - low for low, high in pairwise(cuts)]
        padded = own.new_zeros(max(sizes), own.shape[1])
        padded[: len(own)] = own
        every = world.gather(padded)
        parts += [each[:count] for each, count in zip(every, sizes, strict=True)]
    return joined(parts)


def target_reached(config: TrainerConfig, progress: Progress) -> bool:
    """Whether an evaluation, of this attempt or an earlier one, has reached target_auc."""
    wanted, target = config.target_auc, progress.target
    return wanted is not None and target is not None and target["auc"] >= wanted


def _spell(metrics: Mapping[str, Any]) -> str:
    shown = ("auc", "logloss", "ne", "calibration")
    recalls = tuple(name for name in metrics if name.startswith("recall_at_"))
    return "  ".join(
        f"{name} {metrics[name]:.4f}" for name in shown + recalls if metrics.get(name) is not None
    )
