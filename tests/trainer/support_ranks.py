"""Real ranks for tests: processes that stay, joined by gloo on loopback, to which functions are sent.

Starting a process that imports torch takes seconds; so all tests share one set of ranks, and a
test of two ranks uses the first two of three.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
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

_TIMEOUT_SECONDS = 120
_START_SECONDS = 150  # ten processes that import torch, on two cores that others use too


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
        self._folder = folder
        self._connections: list[Connection] = []
        self._starting: list[Connection] = []  # of ranks that have not said yet that they are there
        self._processes = []
        for rank in range(size):
            here, there = context.Pipe()
            arguments = (rank, size, f"file://{folder}/rendezvous", there, self._stacks(rank))
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self._connections.append(here)
            self._starting.append(here)
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
        self._await_start()
        give_up = time.monotonic() + _TIMEOUT_SECONDS
        outcomes = [self._receive(rank, max(0.0, give_up - time.monotonic())) for rank in range(world_size)]
        failures = [f"rank {rank}: {failure}" for rank, (_, failure) in enumerate(outcomes) if failure]
        if failures:
            raise AssertionError("\n".join(failures))
        return [result for result, _ in outcomes]

    def _await_start(self) -> None:
        give_up = time.monotonic() + _START_SECONDS
        while self._starting:
            if not self._starting[-1].poll(max(0.0, give_up - time.monotonic())):
                raise AssertionError(f"the ranks did not start within {_START_SECONDS} s")
            self._starting.pop().recv()

    def _receive(self, rank: int, seconds: float) -> tuple[Any, str | None]:
        if self._connections[rank].poll(seconds):
            return _receive(self._connections[rank])
        os.kill(self._processes[rank].pid or 0, signal.SIGUSR2)  # it writes down where it stands
        time.sleep(0.5)
        stacks = self._stacks(rank).read_text(encoding="utf-8")
        return None, f"did not answer within {_TIMEOUT_SECONDS} s:\n{stacks}"

    def _stacks(self, rank: int) -> Path:
        return self._folder / f"stacks-{rank}"


def _receive(connection: Connection) -> tuple[Any, str | None]:
    try:
        outcome: tuple[Any, str | None] = connection.recv()
    except EOFError:
        return None, "its process died"
    return outcome


def _serve(rank: int, size: int, rendezvous: str, connection: Connection, stacks: Path) -> None:
    faulthandler.register(signal.SIGUSR2, file=stacks.open("w", encoding="utf-8"), all_threads=True)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ.pop("LOCAL_WORLD_SIZE", None)  # a run in the tests' own process leaves its own behind
    torch.set_num_threads(1)
    timeout = timedelta(seconds=_TIMEOUT_SECONDS)
    distributed.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=timeout
    )
    groups = {count: distributed.new_group(list(range(count))) for count in range(1, size + 1)}
    connection.send("here")
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
