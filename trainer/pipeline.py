"""From batches to steps: what the model is fed, and the two ways of running a step.

`plain` does one thing after the other, which is fastest on CPUs. `sparse_dist` is torchrec's
pipeline: copies to the GPU and the exchange of ids overlap with the step before.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional
from torchrec.distributed import TrainPipelineSparseDist
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

from trainer.data.prefetch import Prefetcher
from trainer.profiling import PhaseClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.data.batch import Batch
    from trainer.optim import Optimizers


@dataclass(slots=True)
class ModelInput(Pipelineable):
    """One rank's share of a step, in the form that the model takes."""

    dense: Tensor
    sparse: KeyedJaggedTensor
    labels: Tensor
    loss_scale: Tensor
    samples: int

    def to(self, device: torch.device, non_blocking: bool = False) -> ModelInput:  # noqa: FBT001, FBT002 - its protocol
        """Copy to a device."""
        return ModelInput(
            dense=self.dense.to(device, non_blocking=non_blocking),
            sparse=self.sparse.to(device, non_blocking=non_blocking),
            labels=self.labels.to(device, non_blocking=non_blocking),
            loss_scale=self.loss_scale.to(device, non_blocking=non_blocking),
            samples=self.samples,
        )

    def record_stream(self, stream: Any) -> None:  # noqa: ANN401 - torch.Stream, torchrec's protocol
        """Keep the memory until a CUDA stream has used it."""
        for part in (self.dense, self.sparse, self.labels, self.loss_scale):
            part.record_stream(stream)

    def pin_memory(self) -> ModelInput:
        """Move to page-locked memory, from which a GPU copies without waiting."""
        return ModelInput(
            dense=self.dense.pin_memory(),
            sparse=self.sparse.pin_memory(),
            labels=self.labels.pin_memory(),
            loss_scale=self.loss_scale,
            samples=self.samples,
        )


class InputMaker:
    """Turns batches into model inputs; the lengths of one-hot ids are made once a batch size.

    `equal` pads every rank to the same number of samples, for sharding types that sum over ranks.
    """

    def __init__(self, features: Sequence[str], world_size: int, *, equal: bool = False) -> None:
        self.features = list(features)
        self.world_size = world_size
        self.equal = equal
        self._layouts: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, batch: Batch) -> ModelInput:
        """No rank may stay away from a step: one without samples takes part with one that weighs nothing."""
        samples = len(batch.labels)
        missing = max(1, -(-batch.global_size // self.world_size) if self.equal else 0) - samples
        if samples and missing <= 0:
            scale = torch.tensor(self.world_size / batch.global_size)
            sparse = self._keyed(batch.sparse, batch.lengths, samples)
            return ModelInput(batch.dense, sparse, batch.labels, scale, samples)
        return self._padded(batch, missing)

    def _padded(self, batch: Batch, missing: int) -> ModelInput:
        """Samples of id 0 behind the batch's own; the loss leaves them out."""
        samples = len(batch.labels)
        count = samples + missing
        if batch.lengths is None:
            sparse = self._keyed(functional.pad(batch.sparse, (0, missing)), None, count)
        else:
            sparse = self._keyed(batch.sparse, functional.pad(batch.lengths, (0, missing)), count)
        return ModelInput(
            dense=functional.pad(batch.dense, (0, 0, 0, missing)),
            sparse=sparse,
            labels=functional.pad(batch.labels, (0, missing)),
            loss_scale=torch.tensor(self.world_size / batch.global_size if samples else 0.0),
            samples=samples,
        )

    def _keyed(self, ids: Tensor, lengths: Tensor | None, samples: int) -> KeyedJaggedTensor:
        if lengths is not None:  # multi-hot: ids are flat, feature by feature
            flat = lengths.reshape(-1).to(torch.int64)
            offsets = functional.pad(flat.cumsum(0), (1, 0))
            return KeyedJaggedTensor(
                keys=self.features, values=ids.reshape(-1), lengths=flat, offsets=offsets, stride=samples
            )
        lengths, offsets = self._layout(samples)
        count = len(self.features)
        return KeyedJaggedTensor(
            keys=self.features,
            values=ids.reshape(-1),
            lengths=lengths,
            offsets=offsets,
            stride=samples,
            length_per_key=[samples] * count,
            offset_per_key=list(range(0, samples * count + 1, samples)),
        )

    def _layout(self, samples: int) -> tuple[Tensor, Tensor]:
        if samples not in self._layouts:
            total = samples * len(self.features)
            self._layouts[samples] = (torch.ones(total, dtype=torch.int64), torch.arange(total + 1))
        return self._layouts[samples]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of training, done."""

    batch: Batch
    loss: Tensor  # 0-d, on the device: this rank's part of the global mean, times the number of ranks


class Pipeline(Protocol):
    """Runs steps over batches; yields after every step, when no state is half-way."""

    data_wait_s: float  # time spent waiting for batches so far
    phases: PhaseClock  # of a step; empty where phases overlap

    def steps(self, batches: Iterable[Batch], first_step: int) -> Iterator[Step]:
        """Run one step a batch; steps are numbered from `first_step` for the learning-rate schedule."""
        ...

    def release(self) -> None:
        """Let the model be called directly, for an evaluation between two steps."""
        ...


class _Feed:
    """Hands out inputs and remembers the batches that they came from, in order; use it as a context.

    A thread reads, lays out and pins up to `ahead` of them before they are asked for.
    """

    def __init__(self, batches: Iterable[Batch], make_input: InputMaker, *, pin: bool, ahead: int) -> None:
        self._make_input = make_input
        self._pin = pin
        self._reader = Prefetcher(self._lay_out(batches), depth=ahead) if ahead else None
        self._ready = self._lay_out(batches) if self._reader is None else iter(self._reader)
        self.under_way: deque[Batch] = deque()
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
        """Seconds spent on batches since the last call."""
        wait_s, self._wait_s = self._wait_s, 0.0
        return wait_s

    def __next__(self) -> ModelInput:
        start = time.perf_counter()
        batch, made = next(self._ready)
        self.under_way.append(batch)
        self._wait_s += time.perf_counter() - start
        return made

    def _lay_out(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, ModelInput]]:
        for batch in batches:
            made = self._make_input(batch)
            yield batch, made.pin_memory() if self._pin else made


class _Base:
    """What a way of running steps is made from."""

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

    def _feed(self, batches: Iterable[Batch]) -> _Feed:
        pin = self.device.type == "cuda"
        return _Feed(batches, self.make_input, pin=pin, ahead=self.read_ahead)


class PlainPipeline(_Base):
    """Forward, backward, update."""

    def steps(self, batches: Iterable[Batch], first_step: int) -> Iterator[Step]:
        """See Pipeline."""
        with self._feed(batches) as feed:
            yield from self._run(feed, first_step)

    def _run(self, feed: _Feed, first_step: int) -> Iterator[Step]:
        for number, made in enumerate(feed, first_step):
            self.data_wait_s += feed.take_wait()
            self.phases.begin(number)
            self.model.train()
            self.optimizers.prepare(number)
            self.optimizers.dense.zero_grad()
            loss, _ = self.model(
                made if self.device.type == "cpu" else made.to(self.device, non_blocking=True)
            )
            self.phases.end("forward")
            loss.backward()
            self.phases.end("backward")
            self.optimizers.dense.step()
            self.phases.end("update")
            yield Step(feed.under_way.popleft(), loss.detach())

    def release(self) -> None:
        """See Pipeline: nothing to do."""


class SparseDistPipeline(_Base):
    """TrainPipelineSparseDist: two batches are on their way while one is computed."""

    _pipeline: TrainPipelineSparseDist | None = None

    def steps(self, batches: Iterable[Batch], first_step: int) -> Iterator[Step]:
        """See Pipeline."""
        with self._feed(batches) as feed:
            yield from self._run(feed, first_step)

    def _run(self, feed: _Feed, first_step: int) -> Iterator[Step]:
        self.release()
        self._pipeline = TrainPipelineSparseDist(self.model, self.optimizers.dense, self.device)
        number = first_step
        while True:
            self.model.train()
            self.optimizers.prepare(number)
            try:
                loss, _ = self._pipeline.progress(feed)
            except StopIteration:
                self.release()
                return
            self.data_wait_s += feed.take_wait()
            number += 1
            yield Step(feed.under_way.popleft(), loss)

    def release(self) -> None:
        """See Pipeline; batches under way are kept for the next step."""
        if self._pipeline is not None:
            self._pipeline.detach()
