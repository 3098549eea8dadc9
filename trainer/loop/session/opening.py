"""The beginning of an attempt: open its parts, resume from a checkpoint if there is one, report the start."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.base.errors import ConfigError
from trainer.checkpoint import Checkpointer
from trainer.data.checks import BatchChecks
from trainer.loop.boundary import make_boundary, watching
from trainer.loop.elastic import fit_batch
from trainer.loop.learner import Learner
from trainer.loop.progress import Progress
from trainer.loop.saving import Saving, restarts, saving_options
from trainer.loop.session.checkpoints import RunCheckpoints
from trainer.loop.session.course import Course
from trainer.loop.session.ending import RunEnd
from trainer.loop.session.evaluation import Evaluator
from trainer.loop.session.feed import BatchFeed, input_device
from trainer.loop.session.judging import StepJudge
from trainer.loop.session.run_parts import RunParts
from trainer.loop.session.session import Session
from trainer.loop.session.step_log import StepLog
from trainer.loop.setup import count_steps, model_shape, open_dataset, set_numerics
from trainer.report.ledger import GoodputLedger
from trainer.report.profiling import StepProfiler
from trainer.report.report import Reporter
from trainer.report.trackers import Trackers, trackers_of
from trainer.retrieval.items import find_items
from trainer.retrieval.negatives import NegativeSampler
from trainer.sharding.planfile import FROM_CHECKPOINT, IN_CHECKPOINT
from trainer.sharding.sharding import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.data.source import SampleSource
    from trainer.preempt import StopFlag
    from trainer.retrieval.items import Items

_FORCE = "FORCE_LOAD_SHARDING_PLAN"  # TorchEasyRec's variable for the same


@contextmanager
def open_session(config: TrainerConfig, world: World) -> Iterator[Session]:
    """Open the parts of a run and resume it; close them at the end of the context."""
    config = fit_batch(config, world.size)
    set_numerics(config, world)
    with ExitStack() as stack:
        # The first, so that it ends last: after the last checkpoint is committed.
        trackers = stack.enter_context(trackers_of(config) if world.is_first else Trackers({}))
        dataset = open_dataset(config, world)
        steps = count_steps(config, dataset, world)
        checkpointer = stack.enter_context(
            Checkpointer(
                config.checkpoint_uri,
                keep=config.keep_checkpoints,
                rank=world.rank,
                world_size=world.size,
                group=world.control,
                options=saving_options(config, world),
            )
        )
        # Before the first file of the run: a stop that is requested once the run is visible must be handled.
        stop = stack.enter_context(watching(config, world))
        folder = Path(config.output_dir)
        reporter = stack.enter_context(Reporter(folder, active=world.is_first, trackers=trackers))
        ledger = stack.enter_context(
            GoodputLedger(folder / "goodput.jsonl", active=world.is_first, restarted=restarts() > 0)
        )
        learner = Learner(
            config,
            model_shape(config, dataset),
            world,
            total_steps=steps,
            draw=False,
            saved_plan=_saved_plan(config, checkpointer),
        )
        items = _open_items(config, world, dataset, learner)
        run = RunParts(config=config, world=world, dataset=dataset, learner=learner)
        saving = Saving(
            config=config, world=world, dataset=dataset, learner=learner, checkpointer=checkpointer
        )
        course = _begin(run, saving, reporter)
        yield _assemble(run, course, saving, reporter=reporter, ledger=ledger, stop=stop, items=items)


def _open_items(config: TrainerConfig, world: World, dataset: SampleSource, learner: Learner) -> Items | None:
    """Return the items of a model of retrieval, which learns their counts; None for other models."""
    retrieval = learner.kind.retrieval
    if retrieval is None:
        if config.num_negatives is not None:
            raise ConfigError(
                f"negatives is {config.negatives}, but model {config.model} is {learner.kind.name}, not for "
                "retrieval; leave negatives and num_negatives out"
            )
        return None
    rows = learner.shape.rows_of_features
    for name in learner.shape.item:
        if dataset.num_embeddings[name] > rows[name]:  # with hash_overflow
            raise ConfigError(
                f"the table of {name} has {rows[name]} rows, but its ids need "
                f"{dataset.num_embeddings[name]}: hash_overflow would make several items one, which model "
                f"{config.model} cannot distinguish; leave num_embeddings and num_embeddings_per_feature "
                "out, or give the item's features enough rows"
            )
    items = find_items(dataset)
    retrieval.learn_counts(items.counts)
    if config.num_negatives is not None:
        learner.make_input.negatives = NegativeSampler(
            items,
            learner.shape.item,
            learner.shape.features,
            count=config.num_negatives,
            seed=config.seed,
            rank=world.rank,
            world_size=world.size,
        )
    return items


def _assemble(
    run: RunParts,
    course: Course,
    saving: Saving,
    *,
    reporter: Reporter,
    ledger: GoodputLedger,
    stop: StopFlag,
    items: Items | None,
) -> Session:
    config, world, dataset, learner = run.config, run.world, run.dataset, run.learner
    boundary = make_boundary(config, world, stop, ledger, resumable=dataset.resumable)
    log = StepLog(world, learner, reporter, ledger)
    checkpoints = RunCheckpoints(saving, timer=boundary.timer, ledger=ledger, reporter=reporter, log=log)
    checks = BatchChecks(dataset, learner.shape.rows_of_features, hash_overflow=config.hash_overflow)
    trace = Path(config.output_dir) / "profile" / f"rank-{world.rank}.json"
    profiler = StepProfiler(config.profile, trace)
    device = input_device(config, dataset, learner)
    feed = BatchFeed(config, dataset, checks, rank=world.rank, ranks=world.size, device=device)
    return Session(
        run=run,
        course=course,
        end=RunEnd(
            run, stop=stop, checkpoints=checkpoints, reporter=reporter, ledger=ledger, profiler=profiler
        ),
        feed=feed,
        judge=StepJudge(
            world,
            learner,
            boundary=boundary,
            checkpoints=checkpoints,
            ledger=ledger,
            feed=feed,
            log=log,
        ),
        checkpoints=checkpoints,
        evaluator=Evaluator(
            config=config,
            world=world,
            dataset=dataset,
            learner=learner,
            checks=checks,
            reporter=reporter,
            ledger=ledger,
            device=device,
            items=items,
        ),
        log=log,
        profiler=profiler,
    )


def _begin(run: RunParts, saving: Saving, reporter: Reporter) -> Course:
    """Resume if there is a checkpoint, and report what the run will do."""
    started = time.perf_counter()
    world, rows = run.world, run.dataset.train.rows
    before = saving.resume()
    resume_s, near_bytes = time.perf_counter() - started, saving.near_bytes()
    course = Course(
        run.config,
        Progress(attempt=restarts()) if before is None else before.progress,
        None if before is None else before.seen,
        rows=rows,
        ranks=world.size,
        started=started,
    )
    resumed = saving.step
    reporter.record(
        "start",
        course.progress.step,
        attempt=course.progress.attempt,
        world_size=world.size,
        resumed_from=resumed,
        resume_s=None if resumed is None else resume_s,
        init_from=None if saving.warm is None else run.config.init_from,
        init_step=None if saving.warm is None else saving.warm.step,
        init_rows=None if saving.warm is None else saving.warm.kept_rows,
        near_bytes=near_bytes,
        total_steps=course.total_steps,
        device=world.device.type,
    )
    _save_plan(run)
    if resumed is None:
        for line in describe(run.learner.plan):
            reporter.say(line)
    for line in () if saving.warm is None else saving.warm.lines():
        reporter.say(line)
    origin = "" if resumed is None else f", resuming from step {resumed}, read in {resume_s:.1f} s"
    if near_bytes:
        origin += f", {near_bytes / 1e6:.1f} MB of it from this run's own disks"
    reporter.say(
        f"{rows} training rows, {course.total_steps} steps of "
        f"{run.config.batch_size} x {world.size} samples on {world.device.type}{origin}"
    )
    return course


def _saved_plan(config: TrainerConfig, checkpointer: Checkpointer) -> Mapping[str, Any] | None:
    """Return the plan of the checkpoint to resume, if it is to be used; None: make a new one. Collective."""
    wanted = config.sharding_plan == FROM_CHECKPOINT or os.environ.get(_FORCE, "").lower() in {"1", "true"}
    extra = checkpointer.newest_extra() if wanted and config.resume else None
    if extra is None:
        return None
    plan = extra.get(IN_CHECKPOINT)
    if not isinstance(plan, dict):
        raise ConfigError(
            f"the checkpoint in {config.checkpoint_uri} has no sharding plan, as it was saved by an earlier "
            f"version; leave out sharding_plan {FROM_CHECKPOINT} and {_FORCE} to make a new plan, under "
            "which it resumes as well"
        )
    return plan


def _save_plan(run: RunParts) -> None:
    """Write the sharding plan beside the reports, so that it can be edited and given to another run."""
    if run.world.is_first:
        path = Path(run.config.output_dir) / "sharding_plan.json"
        try:
            path.write_text(json.dumps(run.learner.plan_document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"output_dir {path.parent} cannot be written: {error}") from error
