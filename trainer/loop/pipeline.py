"""From batches to steps: the inputs of the model, and the pipelines that run a step.

`plain` runs the phases of a step one after the other, which is fastest on CPUs and on one GPU. The others are
torchrec's: copies to the GPU and the exchange of ids overlap with the step before.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import torch
from torchrec.distributed import PrefetchTrainPipelineSparseDist, TrainPipelineSparseDist
from torchrec.distributed.train_pipeline.train_pipelines import (
    TrainPipelineFusedSparseDist,
    TrainPipelineSemiSync,
)

from trainer.data.device.lane import lane_of, take_over
from trainer.data.prefetch import Prefetcher
from trainer.report.profiling import PhaseClock
from trainer.tables.kernels import forget_prefetched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.data.batch import Batch
    from trainer.models.inputs import InputMaker, ModelInput
    from trainer.tables.managed import ManagedTraining
    from trainer.tables.optim import Optimizers


@dataclass(frozen=True, slots=True)
class TrainStep:
    """A completed step of training."""

    batch: Batch
    loss: Tensor  # 0-d, on the device: this rank's part of the global mean, times the number of ranks


_Made: TypeAlias = "tuple[Batch, ModelInput, torch.cuda.Event | None]"


class Pipeline(Protocol):
    """Runs steps over batches; yields after every step, when the state is consistent."""

    data_wait_s: float  # time spent waiting for batches so far
    phases: PhaseClock  # of a step; empty where phases overlap

    @property
    def name(self) -> str:
        """Plain, or the choice of torchrec's pipelines."""
        ...

    def steps(self, batches: Iterable[Batch], first_step: int) -> Iterator[TrainStep]:
        """Run one step per batch; steps are numbered from `first_step` for the learning-rate schedule."""
        ...

    def release(self) -> None:
        """Allow direct calls of the model, for an evaluation between two steps."""
        ...


class _Feed:
    """Yields model inputs and keeps their batches, in order; use it as a context.

    A thread reads, lays out and pins up to `ahead` of them in advance.
    """

    def __init__(
        self, batches: Iterable[Batch], first_step: int, make_input: InputMaker, *, pin: bool, ahead: int
    ) -> None:
        self._first_step = first_step
        self._make_input = make_input
        self._pin = pin
        made = self._lay_out(batches)
        self._reader = Prefetcher(made, depth=ahead, serial=not pin) if ahead else None
        self._ready = made if self._reader is None else iter(self._reader)
        self.in_flight: deque[Batch] = (
            deque()
        )  # batches whose inputs were yielded, and whose step is not done
        self._wait_s = 0.0

    def __enter__(self) -> Self:
        if self._reader is not None:
            self._reader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._reader is not None:
            self._reader.__exit__(None, None, None)

    def __iter__(self) -> Self:
        return self

    def take_wait(self) -> float:
        """Return the seconds spent waiting for batches since the last call."""
        wait_s, self._wait_s = self._wait_s, 0.0
        return wait_s

    def __next__(self) -> ModelInput:
        start = time.perf_counter()
        batch, made, mark = next(self._ready)
        take_over(made, mark)
        self.in_flight.append(batch)
        self._wait_s += time.perf_counter() - start
        return made

    def done(self) -> Batch:
        """Return the batch of the oldest step, which is done."""
        batch = self.in_flight.popleft()
        if batch.sample_ids.device.type == "cuda":
            batch.record_stream(torch.cuda.current_stream(batch.sample_ids.device))
        return batch

    def _lay_out(self, batches: Iterable[Batch]) -> Iterator[_Made]:
        try:
            for step, batch in enumerate(batches, self._first_step):
                lane = lane_of(batch.labels.device)
                with lane.work():
                    made = self._make_input(batch, step)
                is_here = batch.labels.device.type == "cpu"
                yield batch, made.pin_memory() if self._pin and is_here else made, lane.mark()
        finally:
            if isinstance(batches, Generator):
                batches.close()  # ends its threads


class _Base:
    """The parts that both pipelines are made from."""

    def __init__(
        self,
        model: DistributedModelParallel,
        optimizers: Optimizers,
        make_input: InputMaker,
        device: torch.device,
        *,
        read_ahead: int = 0,
    ) -> None:
        self.read_ahead = read_ahead
        self.model = model
        self.optimizers = optimizers
        self.make_input = make_input
        self.device = device
        self.data_wait_s = 0.0
        self.phases = PhaseClock(device)
        self.managed: ManagedTraining | None = None

    def _set_training(self) -> None:
        """Set the modules' mode after an evaluation; in each step, the walk over them would take 0.6 ms."""
        if not self.model.training:
            self.model.train()

    def _feed(self, batches: Iterable[Batch], first_step: int) -> _Feed:
        pin = self.device.type == "cuda"
        return _Feed(batches, first_step, self.make_input, pin=pin, ahead=self.read_ahead)


class _CopiedAhead:
    """Model inputs on a GPU: while one is computed, the next one is copied by another stream."""

    def __init__(self, inputs: Iterator[ModelInput], device: torch.device) -> None:
        self._inputs = inputs
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def __iter__(self) -> Iterator[ModelInput]:
        while True:  # the host is here as soon as it has launched a step
            with torch.cuda.stream(self._stream):  # which also waits for what was made on the device
                made = next(self._inputs, None)
                if made is None:
                    return
                copied = made.to(self._device, non_blocking=True)
            computing = torch.cuda.current_stream(self._device)
            computing.wait_stream(self._stream)
            copied.record_stream(computing)  # its memory belongs to the other stream
            yield copied


class PlainPipeline(_Base):
    """Forward, backward, update; on a GPU, the next batch is copied meanwhile."""

    name = "plain"

    def steps(self, batches: Iterable[Batch], first_step: int) -> Iterator[TrainStep]:
        """See Pipeline."""
        with self._feed(batches, first_step) as feed:
            yield from self._run(feed, first_step)

    def _run(self, feed: _Feed, first_step: int) -> Iterator[TrainStep]:
        on_gpu = self.device.type == "cuda"
        is_ahead = on_gpu and self.managed is None  # managed ids are looked up when their step is due
        inputs = _CopiedAhead(feed, self.device) if is_ahead else feed
        for number, made in enumerate(inputs, first_step):
            self.data_wait_s += feed.take_wait()
            self.phases.begin(number)
            self._set_training()
            self.optimizers.prepare(number)
            self.optimizers.dense.zero_grad()
            if self.managed is not None:
                made.sparse = self.managed.learn(made.sparse, number)
            loss, _ = self.model(made.to(self.device, non_blocking=True) if on_gpu and not is_ahead else made)
            self.phases.end("forward")
            loss.backward()
            self.phases.end("backward")
            self.optimizers.dense.step()
            self.phases.end("update")
            yield TrainStep(feed.done(), loss.detach())

    def release(self) -> None:
        """See Pipeline; this pipeline does not wrap the model, so there is nothing to do."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One of torchrec's pipelines."""

    name: str
    make: Callable[..., TrainPipelineSparseDist]
    restarts: bool  # after an evaluation: it has looked up rows, or found their places in caches, ahead


WAYS = {
    way.name: way
    for way in (
        _Way("sparse_dist", TrainPipelineSparseDist, restarts=False),
        _Way("fused_sparse_dist", TrainPipelineFusedSparseDist, restarts=True),
        _Way("semi_sync", partial(TrainPipelineSemiSync, start_batch=0), restarts=True),
        _Way("prefetch", PrefetchTrainPipelineSparseDist, restarts=True),
    )
}


class _Given:
    """The inputs that a pipeline takes; those whose step is not done can be taken again."""

    def __init__(self, inputs: Iterator[ModelInput]) -> None:
        self._inputs = inputs
        self._taken: deque[ModelInput] = deque()
        self._again: deque[ModelInput] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ModelInput:
        made = self._again.popleft() if self._again else next(self._inputs)
        self._taken.append(made)
        return made

    def done(self) -> None:
        """The oldest input's step is done."""
        self._taken.popleft()

    def rewind(self) -> None:
        """Give the inputs again whose step is not done."""
        self._again.extendleft(reversed(self._taken))
        self._taken.clear()


class OverlappedPipeline(_Base):
    """One of torchrec's pipelines: batches are copied and exchanged while one is computed.

    fused_sparse_dist also looks up the rows of a batch while the dense part is updated, and prefetch brings
    those of the next batch into a GPU's cache. semi_sync looks up the rows of the next batch before the step
    has updated them: that is another algorithm.
    """

    way: _Way = WAYS["sparse_dist"]
    _pipeline: TrainPipelineSparseDist | None = None
    _given: _Given | None = None

    @property
    def name(self) -> str:
        """See Pipeline."""
        return self.way.name

    def steps(self, batches: Iterable[Batch], first_step: int) -> Iterator[TrainStep]:
        """See Pipeline."""
        with self._feed(batches, first_step) as feed:
            yield from self._run(feed, first_step)

    def _run(self, feed: _Feed, first_step: int) -> Iterator[TrainStep]:
        self.release()
        self._pipeline, self._given = None, _Given(feed)
        number = first_step
        while True:
            if self._pipeline is None:
                self._pipeline = self.way.make(self.model, self.optimizers.dense, self.device)
            self._set_training()
            self.optimizers.prepare(number)
            try:
                loss, _ = self._pipeline.progress(self._given)
            except StopIteration:
                self.release()
                return
            self.data_wait_s += feed.take_wait()
            self._given.done()
            number += 1
            yield TrainStep(feed.done(), loss)

    def release(self) -> None:
        """See Pipeline; batches in flight are kept for the next step."""
        if self._pipeline is None:
            return
        self._pipeline.detach()
        if self.way.restarts:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # nothing of it may still be in progress
            self._pipeline = None
            forget_prefetched(self.model)
            if self._given is not None:
                self._given.rewind()
