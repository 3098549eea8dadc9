"""One attempt at a run: data, learner, checkpoints and reports, and what is done between two steps."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer.checkpoint import Checkpointer
from trainer.data.checks import BatchChecks, spell_ids
from trainer.digest import SampleDigest, model_digest
from trainer.errors import CheckpointError, DataError, NonFiniteLossError
from trainer.learner import Learner
from trainer.metrics import BinaryMetrics
from trainer.planfile import to_document
from trainer.preempt import StopFlag
from trainer.profiling import StepProfiler, memory_bytes
from trainer.progress import Progress
from trainer.report import Reporter
from trainer.setup import count_steps, model_shape, open_dataset, set_numerics
from trainer.sharding import describe
from trainer.topology import this_world
from trainer.window import LossWatch, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainer.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.source import Source
    from trainer.distributed import World
    from trainer.pipeline import Step

POLL_STEPS = (
    5  # steps between asking all ranks whether to stop: a collective costs less than a step, not nothing
)
EVALUATION_BATCHES = 4  # an evaluation batch is this many training batches, unless set


@contextmanager
def open_session(config: TrainerConfig, world: World) -> Iterator[Session]:
    """Prepare everything that a run needs, and give it back in the end."""
    set_numerics(config, world)
    with ExitStack() as stack:
        dataset = open_dataset(config, world)
        steps = count_steps(config, dataset, world)
        checkpointer = stack.enter_context(
            Checkpointer(
                config.checkpoint_uri,
                keep=config.keep_checkpoints,
                rank=world.rank,
                world_size=world.size,
                group=world.control,
            )
        )
        stop = StopFlag()  # before anything tells the outside that the run is there
        stop.install()
        stack.callback(stop.uninstall)
        reporter = stack.enter_context(Reporter(Path(config.output_dir), active=world.is_first))
        learner = Learner(config, model_shape(config, dataset), world, total_steps=steps)
        yield Session(
            config=config,
            world=world,
            dataset=dataset,
            learner=learner,
            checkpointer=checkpointer,
            reporter=reporter,
            stop=stop,
            total_steps=steps,
        )


class Session:
    """All of one attempt; every method is called by all ranks alike."""

    def __init__(
        self,
        *,
        config: TrainerConfig,
        world: World,
        dataset: Source,
        learner: Learner,
        checkpointer: Checkpointer,
        reporter: Reporter,
        stop: StopFlag,
        total_steps: int,
    ) -> None:
        self.config = config
        self.world = world
        self.dataset = dataset
        self.checks = BatchChecks(dataset, learner.shape.num_embeddings, hash_overflow=config.hash_overflow)
        self.learner = learner
        self.checkpointer = checkpointer
        self.reporter = reporter
        self.stop = stop
        self.total_steps = total_steps
        self.profiler = StepProfiler(
            config.profile, Path(config.output_dir) / "profile" / f"rank-{world.rank}.json"
        )
        self.progress = Progress(attempt=_restarts())
        self.seen = SampleDigest()
        self._losses = LossWatch()
        self._saved_step: int | None = None
        self._evaluated: tuple[int, dict[str, Any]] | None = None  # step and metrics of the last evaluation
        self._begin()

    def steps(self) -> Iterator[Step]:
        """Run the steps that are left; the clock of each starts when the loop asks for it."""
        self._window = Window(self.learner.pipeline.data_wait_s)
        self._first_step_clock = time.perf_counter()
        left = 0 if self.target_reached else max(0, self.total_steps - self.progress.step)
        batches = self._checked(islice(self._batches(), left))
        self.profiler.before_step(self.progress.step)
        for step in self.learner.pipeline.steps(batches, self.progress.step):
            yield step
            self.profiler.before_step(self.progress.step)
            self._window.resume()
        self.profiler.close()

    def advance(self, step: Step) -> None:
        """Count a step that is done."""
        batch = step.batch
        self.seen.update(self.progress.epoch, batch.sample_ids)
        seconds = self._window.add(step.loss, batch.global_size)
        self._losses.add(step.loss, batch.sample_ids)
        self.progress.advance(batch.global_size, self.dataset.train.rows, seconds)
        if self.due(self.config.log_interval):
            self._log()

    def due(self, interval: int) -> bool:
        """Whether something done every `interval` steps is to be done now; 0 is never."""
        return interval > 0 and self.progress.step % interval == 0

    def stop_agreed(self) -> bool:
        """Ask all ranks, every few steps, whether one of them is to stop; a loss gone bad ends the run."""
        last = self.progress.step >= self.total_steps
        if not (last or self.due(POLL_STEPS) or self._checkpoint_due()):
            return False
        bad_step = self._losses.first_bad_step(self.progress.step)
        wishes = torch.tensor([int(self.stop.requested), bad_step])
        answers = self.world.gather(wishes)
        bad_steps = [int(answer[1]) for answer in answers if int(answer[1])]
        if bad_steps:
            raise NonFiniteLossError(self._explain_bad_loss(min(bad_steps)))
        return not last and any(int(answer[0]) for answer in answers)

    @property
    def target_reached(self) -> bool:
        """Whether an evaluation, of this attempt or an earlier one, has reached target_auc."""
        wanted, target = self.config.target_auc, self.progress.target
        return wanted is not None and target is not None and target["auc"] >= wanted

    def evaluate(self) -> dict[str, Any]:
        """Score the test split exactly, over all ranks; once a step is enough."""
        if self._evaluated is None or self._evaluated[0] != self.progress.step:
            self._evaluated = (self.progress.step, self._evaluate())
        return self._evaluated[1]

    def _evaluate(self) -> dict[str, Any]:
        started = time.perf_counter()
        metrics = BinaryMetrics("cpu")
        stream = self.dataset.batches(
            "test",
            batch_size=self.config.eval_batch_size or EVALUATION_BATCHES * self.config.batch_size,
            rank=self.world.rank,
            world_size=self.world.size,
        )
        for logits, labels in self.learner.score(self.checks.stream(stream)):
            metrics.update(logits, labels)
        result = metrics.compute(self.world.control)
        seconds = time.perf_counter() - started
        self.reporter.record("eval", self.progress.step, **result, seconds=seconds)
        self.reporter.say(f"step {self.progress.step}: {_spell(result)}")
        self._note_target(result["auc"])
        return result

    def _note_target(self, auc: float | None) -> None:
        """Keep when target_auc was first reached: MLPerf's time to train, from the first step on."""
        progress, wanted = self.progress, self.config.target_auc
        if wanted is None or auc is None or auc < wanted or self.target_reached:
            return
        progress.target = {
            "auc": auc,
            "step": progress.step,
            "samples": progress.samples,
            "seconds": self._training_seconds(),
        }
        self.reporter.say(
            f"step {progress.step}: target_auc {wanted} reached after {progress.target['seconds']:.1f} s"
        )

    def _training_seconds(self) -> float:
        """Wall time from the first step on; of earlier attempts, up to the checkpoint gone on from."""
        return self._training_before_s + time.perf_counter() - self._first_step_clock

    def save(self) -> None:
        """Commit a checkpoint of this step, unless there is one."""
        if self._saved_step == self.progress.step:
            return
        self.progress.checkpoint_count += 1
        self.progress.training_s = self._training_seconds()
        extra = {
            "progress": self.progress.to_json(),
            "samples": self.seen.merge(self.world.control).state(),
            "config": self.config.model_dump(mode="json"),  # with "model", what scoring needs
            "model": asdict(self.learner.shape),
        }
        report = self.checkpointer.save(self.progress.step, self.learner.state, extra, self._fingerprint())
        self._saved_step = self.progress.step
        self.progress.checkpoint_s += report.seconds
        self._window.checkpoint_s += report.seconds
        self._saved_bytes = report.bytes
        self.reporter.record("checkpoint", report.step, seconds=report.seconds, bytes=report.bytes)
        self.reporter.say(
            f"step {report.step}: checkpoint, {report.bytes / 1e6:.1f} MB in {report.seconds:.2f} s"
        )

    def finish(self, status: str, metrics: Mapping[str, Any] | None) -> None:
        """Write the summary, and the trace of a run that ended while it was recorded."""
        self.profiler.close()
        progress = self.progress
        samples = self.seen.merge(self.world.control)
        wall_s = time.perf_counter() - self._started
        quality = {name: (metrics or {}).get(name) for name in ("auc", "logloss", "ne", "calibration")}
        self.reporter.summarise(
            {
                "status": status,
                "step": progress.step,
                "epochs": progress.epoch + progress.position / self.dataset.train.rows,
                "samples_seen": progress.samples,
                "samples_digest": samples.hex(),
                "model_digest": model_digest(self.learner.state, self.world.control),
                **quality,
                "samples_per_s": self._attempt_samples() / max(self._attempt_productive_s(), 1e-9),
                "wall_s": wall_s,
                "goodput": progress.goodput,
                **self._target_figures(),
                "restarts": progress.attempt,
                "checkpoint": {
                    "count": progress.checkpoint_count,
                    "seconds": progress.checkpoint_s,
                    "bytes": self._saved_bytes,
                    "last_step": self._saved_step,
                },
                "world_size": self.world.size,
            }
        )
        self.reporter.say(
            f"{status} at step {progress.step} of {self.total_steps}, {progress.samples} samples"
        )

    def _target_figures(self) -> dict[str, Any]:
        reached = (self.progress.target or {}) if self.target_reached else {}
        return {
            "target_auc": self.config.target_auc,
            "target_reached": self.target_reached if self.config.target_auc else None,
            "time_to_target_s": reached.get("seconds"),
            "steps_to_target": reached.get("step"),
            "samples_to_target": reached.get("samples"),
        }

    def _begin(self) -> None:
        """Resume, if there is something to go on from, and say what is going to happen."""
        self._started = time.perf_counter()
        self._saved_bytes = 0
        resumed = self._resume()
        self._training_before_s = self.progress.training_s
        self._first_step_clock = time.perf_counter()
        self._first = (self.progress.samples, self.progress.productive_s)
        self.reporter.record(
            "start",
            self.progress.step,
            attempt=self.progress.attempt,
            world_size=self.world.size,
            resumed_from=resumed,
            total_steps=self.total_steps,
            device=self.world.device.type,
        )
        self._save_plan()
        if resumed is None:
            for line in describe(self.learner.plan):
                self.reporter.say(line)
        origin = "" if resumed is None else f", going on from step {resumed}"
        self.reporter.say(
            f"{self.dataset.train.rows} training rows, {self.total_steps} steps of "
            f"{self.config.batch_size} x {self.world.size} samples on {self.world.device.type}{origin}"
        )

    def _save_plan(self) -> None:
        """Beside the reports, so that it can be read, changed and given to another run."""
        if self.world.is_first:
            machines = this_world(self.config, self.world)
            document = to_document(self.learner.plan, self.learner.shape, machines)
            path = Path(self.config.output_dir) / "sharding_plan.json"
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def _resume(self) -> int | None:
        steps = self.checkpointer.steps()
        if not self.config.resume:
            if steps:
                raise CheckpointError(
                    f"{self.config.checkpoint_uri} holds checkpoints up to step {steps[-1]}, and resume is "
                    "off; take another checkpoint_dir, or leave resume on to go on from them"
                )
            return None
        step = self.checkpointer.newest()
        if step is None:
            return None
        if not self.dataset.resumable:
            raise CheckpointError(
                f"{self.config.checkpoint_uri} holds a checkpoint of step {step}, but the loader "
                f"{self.config.dataset} cannot start where that stopped (resumable is False); take another "
                "checkpoint_dir to start afresh"
            )
        extra = self.checkpointer.load(step, self.learner.state, self._fingerprint())
        self.progress = Progress.from_json(extra["progress"], restarts=_restarts())
        if self.world.is_first:  # digests are summed over ranks: one of them carries the past
            self.seen = SampleDigest.from_state(extra["samples"])
        self._saved_step = step
        return step

    def _batches(self) -> Iterator[Batch]:
        """All batches that are left; drawn ahead of the steps, so nothing here reads the progress twice."""
        start = self.progress.position
        for epoch in range(self.progress.epoch, self.config.num_epochs):
            yield from self.dataset.batches(
                "train",
                batch_size=self.config.batch_size,
                rank=self.world.rank,
                world_size=self.world.size,
                seed=self.config.seed,
                epoch=epoch,
                start_sample=start,
                shuffle=self.config.shuffle,
            )
            start = 0

    def _checked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of coming steps; what is wrong with one is told with its step and its samples."""
        for number, batch in enumerate(batches, self.progress.step + 1):
            try:
                yield self.checks(batch)
            except DataError as error:
                ids = spell_ids(batch.sample_ids.tolist())
                raise DataError(f"step {number}: {error} (its batch: {ids}; {self._last_good()})") from None

    def _log(self) -> None:
        window, progress = self._window, self.progress
        loss = self.world.sum([window.loss])[0] / self.world.size / max(window.samples, 1)
        speed = window.samples / max(window.seconds, 1e-9)
        self.reporter.record(
            "train",
            progress.step,
            attempt=progress.attempt,
            epoch=progress.epoch,
            samples=progress.samples,
            loss=loss,
            lr=self.learner.optimizers.learning_rate,
            samples_per_s=speed,
            # Means over the steps since the last line: a step's time holds its wait for data, not the stall.
            step_s=window.seconds / max(window.steps, 1),
            data_wait_s=(self.learner.pipeline.data_wait_s - window.data_wait_start_s) / max(window.steps, 1),
            ckpt_stall_s=window.checkpoint_s / max(window.steps, 1),
            **{f"{phase}_s": seconds for phase, seconds in self.learner.pipeline.phases.take().items()},
            memory_bytes=memory_bytes(self.world.device),
        )
        text = f"loss {loss:.4f}  {speed:,.0f} samples/s"
        self.reporter.advance(progress.step, self.total_steps, text)
        self._window = Window(self.learner.pipeline.data_wait_s)

    def _checkpoint_due(self) -> bool:
        return self.due(self.config.checkpoint_interval)

    def _fingerprint(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be gone on from."""
        return {
            "dataset": self.dataset.digest,
            "num_embeddings": self.learner.shape.num_embeddings,
            "embedding_dim": self.config.embedding_dim,
            "dense_arch_layer_sizes": list(self.config.dense_arch_layer_sizes),
            "over_arch_layer_sizes": list(self.config.over_arch_layer_sizes),
            "interaction": self.config.interaction,
            "table_optimizer": self.config.table_optimizer,
            "embedding_weight_precision": self.config.embedding_weight_precision,
            "dense_optimizer": self.config.dense_optimizer,
            "seed": self.config.seed,
            "shuffle": self.config.shuffle,
        }

    def _attempt_samples(self) -> int:
        return self.progress.samples - self._first[0]

    def _attempt_productive_s(self) -> float:
        return self.progress.productive_s - self._first[1]

    def _last_good(self) -> str:
        if self._saved_step is None:
            return "no checkpoint was saved before it"
        return f"the last good checkpoint is that of step {self._saved_step} in {self.config.checkpoint_uri}"

    def _explain_bad_loss(self, step: int) -> str:
        ids = self.world.gather_lists(self._losses.samples_of(step, self.progress.step))
        rate = self.learner.optimizers.learning_rate
        saved = self._last_good()
        return (
            f"the loss became NaN or infinite at step {step} (learning_rate {rate:g}) in the batch of "
            f"{spell_ids(ids)}; {saved}; "
            "lower learning_rate or dense_learning_rate, or raise lr_warmup_steps"
        )


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _spell(metrics: Mapping[str, Any]) -> str:
    shown = ("auc", "logloss", "ne", "calibration")
    return "  ".join(f"{name} {metrics[name]:.4f}" for name in shown if metrics.get(name) is not None)
