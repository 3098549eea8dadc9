"""The walk looks at each thing a fixed number of times, however many others there are."""

from __future__ import annotations

from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest

from cloudrec.engine import walk as module
from cloudrec.engine.walk import walk


def _layers(size: int) -> dict[str, set[str]]:
    """Ten layers; each thing needs three of the layer before."""
    width = size // 10
    return {
        str(number): {str(number - width + step) for step in range(3) if number - width + step < number}
        if number >= width
        else set()
        for number in range(size)
    }


@pytest.mark.parametrize("size", [500, 4000])
def test_each_thing_costs_the_same_few_looks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    looks, made = list[str](), list[int]()

    class Counted(Future[Any]):
        def __init__(self) -> None:
            super().__init__()
            made.append(1)

        def done(self) -> bool:
            looks.append("done")
            return super().done()

        def add_done_callback(self, fn: Any) -> None:
            looks.append("callback")
            super().add_done_callback(fn)

        def exception(self, timeout: float | None = None) -> BaseException | None:
            looks.append("exception")
            return super().exception(timeout)

        def result(self, timeout: float | None = None) -> Any:
            looks.append("result")
            return super().result(timeout)

    class Queue(SimpleQueue[Any]):
        def get(self, *given: Any) -> Any:
            looks.append("wake")
            return super().get(*given)

    monkeypatch.setattr("concurrent.futures.thread._base.Future", Counted)
    monkeypatch.setattr(module, "SimpleQueue", Queue, raising=True)
    order = list[str]()
    assert walk(_layers(size), order.append, stop_at_failure=True) == {}
    assert (len(order), len(made)) == (size, size)
    assert len(looks) == 4 * size  # callback, wake, exception, result
