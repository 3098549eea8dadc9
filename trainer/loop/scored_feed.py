"""The inputs of a scoring: read ahead by a thread, and on a GPU copied while it scores the batch before."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Self

import torch

from trainer.data.device.lane import lane_of, take_over
from trainer.data.prefetch import Prefetcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainer.data.batch import Batch
    from trainer.models.inputs import ModelInput

_QUEUED = 2  # batches that a GPU still has to score when the next one is copied, so that it never waits


class ScoredFeed:
    """Yields batches with their inputs on the device, in order; use it as a context.

    A thread reads, lays out and pins up to `ahead` of them in advance; 0: no thread does.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        lay_out: Callable[[Batch], ModelInput],
        device: torch.device,
        *,
        ahead: int,
    ) -> None:
        self._lay_out = lay_out
        self._device = device
        self._on_gpu = device.type == "cuda"
        made = self._made(batches)
        self._reader = Prefetcher(made, depth=ahead, serial=not self._on_gpu) if ahead else None
        self._ready = made if self._reader is None else self._reader

    def __enter__(self) -> Self:
        if self._reader is not None:
            self._reader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._reader is not None:
            self._reader.__exit__(None, None, None)

    def __iter__(self) -> Iterator[tuple[Batch, ModelInput]]:
        if self._on_gpu:
            return self._copied()
        return ((batch, made) for batch, made, _ in self._ready)

    def _made(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, ModelInput, torch.cuda.Event | None]]:
        """Yield batches, their inputs, and a mark of the lane that made them if it was not the CPU."""
        try:
            for batch in batches:
                lane = lane_of(batch.labels.device)
                with lane.work():
                    made = self._lay_out(batch)
                is_here = batch.labels.device.type == "cpu"
                yield batch, made.pin_memory() if self._on_gpu and is_here else made, lane.mark()
        finally:
            if isinstance(batches, Generator):
                batches.close()  # ends its threads

    def _copied(self) -> Iterator[tuple[Batch, ModelInput]]:
        """Yield inputs on the GPU: each is copied on a second stream before its predecessor is scored."""
        copies = torch.cuda.Stream(self._device)
        scored: deque[torch.cuda.Event] = deque()
        copied: deque[tuple[Batch, ModelInput, torch.cuda.Event]] = deque()
        for batch, made, mark in self._ready:
            while len(scored) > _QUEUED:
                scored.popleft().synchronize()  # or copies would fill the memory before they are used
            with torch.cuda.stream(copies):
                take_over(made, mark)
                moved = made.to(self._device, non_blocking=True)
            copied.append((batch, moved, copies.record_event()))
            if len(copied) > 1:
                yield self._arrived(copied)
                scored.append(torch.cuda.current_stream(self._device).record_event())
        while copied:
            yield self._arrived(copied)

    def _arrived(self, copied: deque[tuple[Batch, ModelInput, torch.cuda.Event]]) -> tuple[Batch, ModelInput]:
        """Return the oldest copied input, for the stream that scores."""
        batch, made, end = copied.popleft()
        scoring = torch.cuda.current_stream(self._device)
        scoring.wait_event(end)
        made.record_stream(scoring)
        return batch, made
