"""The ranks of a run: rendezvous, process groups, and small collectives on the CPU."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed

from trainer.base.errors import ConfigError, PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping
    from pathlib import Path

    from torch.distributed import ProcessGroup

DEFAULT_TIMEOUT_SECONDS = 600.0
FLIGHT_EVENTS = "2000"  # nccl's last operations that each rank remembers


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This rank's place among all ranks."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    group: ProcessGroup  # for the model: gloo on CPU, nccl on GPUs
    control: ProcessGroup  # for small values on the CPU: always gloo

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes the reports and the messages."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Return the sums over the ranks, element by element, in double precision; collective."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total, group=self.control)
        return [float(value) for value in total]

    def gather_lists(self, values: list[int]) -> list[int]:
        """Return the numbers of all ranks, concatenated in the order of ranks; collective."""
        if self.size == 1:
            return values
        parts: list[list[int]] = [[] for _ in range(self.size)]
        distributed.all_gather_object(parts, values, group=self.control)
        return [value for part in parts for value in part]

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every rank's tensor, in the order of ranks; all have the same shape. Collective."""
        if self.size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        distributed.all_gather(parts, tensor, group=self.control)
        return parts


@contextmanager
def join_world(device_choice: str, output_dir: Path | None = None) -> Iterator[World]:
    """Join the ranks that torchrun started, or form a world of one; leave it at the end of the context.

    If an nccl collective times out, nccl's flight recorder writes its last operations below `output_dir`.

    Raises:
        PeerError: the ranks did not find one another.
        ConfigError: the device or torchrun's variables are wrong.
    """
    environment = _rendezvous(os.environ)
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    device = choose_device(device_choice, local_rank)
    timeout = timedelta(seconds=read_timeout(os.environ))
    if device.type == "cuda" and output_dir is not None:
        record_flights(output_dir, os.environ)
    try:
        _initialise(device, environment, timeout)
        control = (
            distributed.group.WORLD
            if device.type == "cpu"
            else distributed.new_group(backend="gloo", timeout=timeout)
        )
    except (RuntimeError, ValueError) as error:
        raise PeerError(f"the ranks did not find one another: {first_line(error)}") from error
    try:
        yield World(
            rank=distributed.get_rank(),
            size=distributed.get_world_size(),
            local_rank=local_rank,
            local_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            device=device,
            group=distributed.group.WORLD,
            control=control,
        )
    finally:
        distributed.destroy_process_group()


def record_flights(output_dir: Path, environment: MutableMapping[str, str]) -> None:
    """Configure nccl's flight recorder, which writes a file per rank after a time-out; set variables stay."""
    folder = output_dir.resolve() / "flight_recorder"
    folder.mkdir(parents=True, exist_ok=True)
    environment.setdefault("TORCH_FR_BUFFER_SIZE", FLIGHT_EVENTS)
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "true")
    environment.setdefault("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", f"{folder}/rank_")


def choose_device(choice: str, local_rank: int) -> torch.device:
    """Return this rank's device; `auto` is a GPU if there is one. ConfigError if there is none for cuda."""
    if choice == "cpu" or (choice == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch sees no GPU on this machine; set device to auto or cpu")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"this is local rank {local_rank}, but the machine has {torch.cuda.device_count()} GPUs; "
            "start at most one rank a GPU"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def read_timeout(environment: Mapping[str, str]) -> float:
    """Return PROCESS_GROUP_TIMEOUT_SECONDS: the seconds after which a collective fails."""
    text = environment.get("PROCESS_GROUP_TIMEOUT_SECONDS", str(DEFAULT_TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(
            f"PROCESS_GROUP_TIMEOUT_SECONDS is {text!r}; it must be a number of seconds above 0"
        )
    return seconds


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message: torch appends C++ stack traces."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _rendezvous(environment: Mapping[str, str]) -> dict[str, str]:
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "ALONE": "1"}
    missing = [
        name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in environment
    ]
    if missing:
        raise ConfigError(
            f"the environment has some of torchrun's variables but not {', '.join(missing)}; "
            "start the trainer by torchrun, or alone with none of them set"
        )
    return dict(environment)


def _initialise(device: torch.device, environment: Mapping[str, str], timeout: timedelta) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    os.environ.setdefault("LOCAL_WORLD_SIZE", environment.get("LOCAL_WORLD_SIZE", "1"))  # torchrec reads it
    if "ALONE" in environment:
        store = distributed.HashStore()  # a world of one needs no port
        distributed.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        distributed.init_process_group(backend, timeout=timeout)
