"""Real ranks for tests: processes that stay, joined by gloo on loopback, to which functions are sent.

Starting a process that imports torch takes seconds; so all tests share one set of ranks, and a
test of two ranks uses the first two of three.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Place:
    """A function's place among those that run it."""

    rank: int
    world_size: int
    group: Any  # the process group of those ranks


class RankPool:
    """Runs functions of test modules on ranks; use it as a context."""

    def __init__(self, size: int, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(size):
            here, there = context.Pipe()
            arguments = (rank, size, f"file://{folder}/rendezvous", there)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, connection in zip(self._processes, self._connections, strict=True):
            process.kill()  # they are idle, and leaving in good order takes seconds
            process.join()
            connection.close()

    def run(self, world_size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `function(place, *arguments)` on ranks 0 to `world_size` - 1; the results, by rank."""
        used = self._connections[:world_size]
        for connection in used:
            connection.send((world_size, function, arguments))
        outcomes = [_receive(connection) for connection in used]
        for rank, (_, failure) in enumerate(outcomes):
            if failure is not None:
                raise AssertionError(f"rank {rank} of {world_size} failed:\n{failure}")
        return [result for result, _ in outcomes]


def _receive(connection: Connection) -> tuple[Any, str | None]:
    if not connection.poll(_TIMEOUT_SECONDS):
        raise AssertionError(f"a rank did not answer within {_TIMEOUT_SECONDS} s")
    try:
        outcome: tuple[Any, str | None] = connection.recv()
    except EOFError:
        return None, "its process died"
    return outcome


def _serve(rank: int, size: int, rendezvous: str, connection: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    timeout = timedelta(seconds=_TIMEOUT_SECONDS)
    distributed.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=timeout
    )
    groups = {count: distributed.new_group(list(range(count))) for count in range(1, size + 1)}
    while True:
        try:
            world_size, function, arguments = connection.recv()
        except EOFError:  # the pool was closed
            break
        try:
            connection.send((function(Place(rank, world_size, groups[world_size]), *arguments), None))
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - told to the test
            connection.send((None, traceback.format_exc()))
    distributed.destroy_process_group()
