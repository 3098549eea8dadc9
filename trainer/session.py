"""One attempt at a run: data, learner, checkpoints and reports, and what is done between two steps."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.boundary import Verdict, make_boundary, watching
from trainer.checkpoint import Checkpointer
from trainer.data.checks import BatchChecks, spell_ids
from trainer.digest import SampleDigest, model_digest
from trainer.elastic import Course, fit_batch
from trainer.errors import DataError, NonFiniteLossError
from trainer.evaluation import Evaluator, target_reached
from trainer.learner import Learner
from trainer.ledger import GoodputLedger
from trainer.planfile import to_document
from trainer.profiling import StepProfiler, memory_bytes
from trainer.progress import Progress
from trainer.report import Reporter
from trainer.saving import Saving, restarts, saving_options
from trainer.setup import count_steps, model_shape, open_dataset, set_numerics
from trainer.sharding import describe
from trainer.summary import AttemptClock, make_summary
from trainer.topology import this_world
from trainer.window import LossWatch, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainer.checkpoint.saves import CheckpointReport
    from trainer.config import TrainerConfig
    from trainer.data.batch import Batch
    from trainer.data.source import Source
    from trainer.distributed import World
    from trainer.pipeline import Step
    from trainer.preempt import StopFlag

STOPPED = "stopped"


class _BadBatchError(DataError):
    """A batch that must not be learnt from; its message wants its end."""


@contextmanager
def open_session(config: TrainerConfig, world: World) -> Iterator[Session]:
    """Prepare everything that a run needs, and give it back in the end."""
    config = fit_batch(config, world)
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
                options=saving_options(config),
            )
        )
        stop = stack.enter_context(watching(config, world))  # before anything tells that the run is there
        folder = Path(config.output_dir)
        reporter = stack.enter_context(Reporter(folder, active=world.is_first))
        ledger = stack.enter_context(
            GoodputLedger(folder / "goodput.jsonl", active=world.is_first, restarted=restarts() > 0)
        )
        learner = Learner(config, model_shape(config, dataset), world, total_steps=steps, draw=False)
        yield Session(
            config=config,
            world=world,
            dataset=dataset,
            learner=learner,
            checkpointer=checkpointer,
            reporter=reporter,
            ledger=ledger,
            stop=stop,
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
        ledger: GoodputLedger,
        stop: StopFlag,
    ) -> None:
        self.config = config
        self.world = world
        self.dataset = dataset
        self.checks = BatchChecks(dataset, learner.shape.num_embeddings, hash_overflow=config.hash_overflow)
        self.learner = learner
        self.reporter = reporter
        self.saving = Saving(
            config=config, world=world, dataset=dataset, learner=learner, checkpointer=checkpointer
        )
        self.evaluator = Evaluator(
            config=config,
            world=world,
            dataset=dataset,
            learner=learner,
            checks=self.checks,
            reporter=reporter,
        )
        self.stop = stop
        self.ledger = ledger
        self.boundary = make_boundary(config, world, stop, ledger)
        self.profiler = StepProfiler(
            config.profile, Path(config.output_dir) / "profile" / f"rank-{world.rank}.json"
        )
        self.progress = Progress(attempt=restarts())
        self.seen = SampleDigest()
        self._losses = LossWatch()
        self._begin()

    def steps(self) -> Iterator[Step]:
        """Run the steps that are left; the clock of each starts when the loop asks for it."""
        self._window = Window(self.learner.pipeline.data_wait_s)
        self._clock.begin_steps()
        self.ledger.begin(self.progress.step)
        self.boundary.begin(self.progress.step)
        left = 0 if self.target_reached else self.course.left
        batches = self._checked(islice(self._batches(), left))
        self.profiler.before_step(self.progress.step)
        try:
            for step in self.learner.pipeline.steps(batches, self.course.done):
                yield step
                self.profiler.before_step(self.progress.step)
                self._window.resume()
        except _BadBatchError as error:
            raise DataError(f"{error}; {self.saving.last_good()})") from None
        self.profiler.close()

    def advance(self, step: Step) -> None:
        """Count a step that is done."""
        batch = step.batch
        self.seen.update(self.progress.epoch, batch.sample_ids)
        seconds = self._window.add(step.loss, batch.global_size)
        self._losses.add(step.loss, batch.sample_ids)
        self.progress.advance(batch.global_size, self.dataset.train.rows, seconds)
        self.ledger.spent.steps += seconds
        self.ledger.spent.data_wait = self.learner.pipeline.data_wait_s
        if self.due(self.config.log_interval):
            self._log()

    def due(self, interval: int) -> bool:
        """Whether something done every `interval` steps is to be done now; 0 is never."""
        return interval > 0 and self.progress.step % interval == 0

    def agree(self) -> Verdict:
        """What all ranks do after this step; a loss gone bad ends the run."""
        step = self.progress.step
        last = step >= self.total_steps
        if not self.boundary.is_due(step, last=last):
            return Verdict()
        self.ledger.mark(step)
        self._note(self.saving.poll(self.progress))
        if self.boundary.timer.halfway(step, self.ledger.elapsed):
            self.saving.checkpointer.foresee(self.learner.state)
        bad_step = self._losses.first_bad_step(step)
        verdict = self.boundary.ask(
            step, last=last, committed=self.saving.step is not None, bad_step=bad_step
        )
        if verdict.bad_step:
            self._note(self.saving.poll(self.progress, wait=True))  # it may be what to go back to
            raise NonFiniteLossError(self._explain_bad_loss(verdict.bad_step))
        if verdict.save and not verdict.stop and self.saving.is_busy and not self.boundary.timer.by_steps:
            return replace(verdict, save=False)  # due by time, but the last one is still being written
        return verdict

    @property
    def target_reached(self) -> bool:
        """Whether an evaluation, of this attempt or an earlier one, has reached target_auc."""
        return target_reached(self.config, self.progress)

    def evaluate(self) -> dict[str, Any]:
        """Score the test split exactly, over all ranks; once a step is enough."""
        started = time.perf_counter()
        result = self.evaluator.evaluate(self.progress.step)
        self.ledger.spent.evaluation += time.perf_counter() - started
        self.evaluator.note_target(self.progress, result["auc"], self._clock.training_s)
        return result

    def save(self, *, wait: bool = True) -> None:
        """Save a checkpoint of this step, unless there is one; with `wait` it is committed on return."""
        if self.saving.step == self.progress.step:
            return
        if self.saving.begun != self.progress.step:
            self.progress.checkpoint_count += 1
        self.progress.training_s = self._clock.training_s
        self.ledger.cut(self.progress.step)
        self.boundary.timer.cut(self.ledger.elapsed)
        self._note(self.saving.save(self.progress, self.seen, wait=wait))

    def _note(self, reports: list[CheckpointReport]) -> None:
        """Tell of checkpoints that are committed."""
        for report in reports:
            self._window.checkpoint_s += report.seconds
            self.ledger.saved(self.progress.step, stall_s=report.seconds, write_s=report.write_s)
            self.boundary.timer.saved(report.seconds, report.write_s)
            self.reporter.record(
                "checkpoint",
                report.step,
                seconds=report.seconds,
                write_s=report.write_s,
                bytes=report.bytes,
                content=report.kind,
            )
            self.reporter.say(
                f"step {report.step}: {report.kind} checkpoint, {report.bytes / 1e6:.1f} MB written in "
                f"{report.write_s:.2f} s, training stopped for {report.seconds * 1e3:.0f} ms"
            )

    def leave(self, verdict: Verdict) -> None:
        """Stop here, with a checkpoint if there is time for one; otherwise the last one stands for it."""
        notice = self.stop.notice
        if notice is not None:
            self.reporter.say(f"stopping: {notice.source}: {notice.reason}", everywhere=True)
        if verdict.save:
            self.save()
        else:
            self.reporter.say(
                f"{verdict.seconds_left:.0f} s left are too few for a checkpoint, which takes "
                f"{self.boundary.timer.costs.write_s:.0f} s; {self.saving.last_good()}"
            )
        self.finish(STOPPED, None, in_haste=verdict.seconds_left < math.inf)

    def finish(self, status: str, metrics: Mapping[str, Any] | None, *, in_haste: bool = False) -> None:
        """Write the summary, and the trace of a run that ended while it was recorded.

        In haste the model's digest is left out: reading all tables may take longer than there is time.
        """
        self.profiler.close()
        progress = self.progress
        digests = {
            "samples_digest": self.seen.merge(self.world.control).hex(),
            "model_digest": None if in_haste else model_digest(self.learner.state, self.world.control),
        }
        self.ledger.end(status, saved=self.saving.step == progress.step)
        figures = make_summary(
            self.config,
            progress,
            self._clock,
            self.saving,
            goodput=self.ledger.totals(),
            metrics=metrics,
        )
        self.reporter.summarise({"status": status, **figures, **digests})
        self.reporter.say(
            f"{status} at step {progress.step} of {self.total_steps}, {progress.samples} samples"
        )

    def _begin(self) -> None:
        """Resume, if there is something to go on from, and say what is going to happen."""
        started = time.perf_counter()
        before = self.saving.resume()
        if before is not None:
            self.progress, self.seen = before.progress, before.seen
        resumed = self.saving.step
        rows = self.dataset.train.rows
        self.course = Course(self.config, self.progress, rows=rows, ranks=self.world.size)
        self.total_steps = self.progress.step + self.course.left
        self._clock = AttemptClock(started, self.progress)
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
        """The batches of coming steps; what is wrong with one is told with its step and its samples.

        Runs ahead of the steps, so which checkpoint is the last good one is told when the step is reached.
        """
        for number, batch in enumerate(batches, self.progress.step + 1):
            try:
                yield self.checks(batch)
            except DataError as error:
                ids = spell_ids(batch.sample_ids.tolist())
                raise _BadBatchError(f"step {number}: {error} (its batch: {ids}") from None

    def _log(self) -> None:
        window, progress = self._window, self.progress
        loss = self.world.sum([window.loss])[0] / self.world.size / max(window.samples, 1)
        speed = window.samples / max(window.seconds, 1e-9)
        goodput = self.ledger.totals()
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
            goodput=goodput.fraction,
            goodput_parts=goodput.to_json(),
        )
        text = f"loss {loss:.4f}  {speed:,.0f} samples/s"
        self.reporter.advance(progress.step, self.total_steps, text)
        self._window = Window(self.learner.pipeline.data_wait_s)

    def _explain_bad_loss(self, step: int) -> str:
        ids = self.world.gather_lists(self._losses.samples_of(step, self.progress.step))
        rate = self.learner.optimizers.learning_rate
        saved = self.saving.last_good()
        return (
            f"the loss became NaN or infinite at step {step} (learning_rate {rate:g}) in the batch of "
            f"{spell_ids(ids)}; {saved}; "
            "lower learning_rate or dense_learning_rate, or raise lr_warmup_steps"
        )
