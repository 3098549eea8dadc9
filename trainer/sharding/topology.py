"""The machines that a plan is made for: measured, set by environment variables, or described by flags."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torchrec.distributed.planner import Topology

from trainer.base.errors import ConfigError
from trainer.sharding.cards import speeds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World

MILLISECONDS = 1000  # the planner counts bandwidth in bytes a millisecond
GB = 10**9
DEFAULT_RESERVE = 0.15
BANDWIDTHS = {"INTRA_NODE_BANDWIDTH": "intra_host_bw", "CROSS_NODE_BANDWIDTH": "inter_host_bw"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The number of ranks, and the memory of each."""

    world_size: int
    local_world_size: int
    device: str  # "cpu" or "cuda"
    hbm_bytes: int  # of GPU memory
    ddr_bytes: int  # of host memory
    card: str | None = None  # the driver's name of the GPUs, if known

    @property
    def memory_name(self) -> str:
        """The kind of memory that tables use first."""
        return "GPU" if self.device == "cuda" else "host"

    @property
    def memory_bytes(self) -> int:
        """The bytes of that memory per rank."""
        return self.hbm_bytes if self.device == "cuda" else self.ddr_bytes


def this_world(config: TrainerConfig, world: World) -> Machines:
    """Measure this run's machines; the configuration's caps replace the measured memory."""
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    device_bytes = torch.cuda.mem_get_info()[1] if world.device.type == "cuda" else 0
    return Machines(
        world_size=world.size,
        local_world_size=world.local_size,
        device=world.device.type,
        hbm_bytes=_capped(config.hbm_cap_gb, device_bytes),
        ddr_bytes=_capped(config.ddr_cap_gb, host_bytes // world.local_size),
        card=torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else None,
    )


def make_topology(machines: Machines, environment: Mapping[str, str]) -> Topology:
    """Return the planner's topology.

    The speeds are those of a card that trainer.sharding.cards knows, or else torchrec's, which are of a V100.
    Environment variables, in bytes per second, come before both.
    """
    speeds = speeds_of(machines.card)
    bandwidths = {}
    if speeds is not None:
        bandwidths = {
            "hbm_mem_bw": speeds.memory / MILLISECONDS,
            "hbm_to_ddr_mem_bw": speeds.host / MILLISECONDS,
            "intra_host_bw": speeds.peers / MILLISECONDS,
        }
    bandwidths |= {
        parameter: _positive(variable, environment[variable]) / MILLISECONDS
        for variable, parameter in BANDWIDTHS.items()
        if variable in environment
    }
    return Topology(
        world_size=machines.world_size,
        local_world_size=machines.local_world_size,
        compute_device=machines.device,
        hbm_cap=machines.hbm_bytes,
        ddr_cap=machines.ddr_bytes,
        **bandwidths,
    )


def read_reserve(environment: Mapping[str, str]) -> float:
    """Return STORAGE_RESERVE_PERCENT, which is a fraction: the part of memory that is not for tables."""
    text = environment.get("STORAGE_RESERVE_PERCENT", str(DEFAULT_RESERVE))
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ConfigError(f"STORAGE_RESERVE_PERCENT is {text!r}; it must be a fraction from 0 to below 1")
    return share


def _positive(variable: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{variable} is {text!r}; it must be a number of bytes a second above 0")
    return value


def _capped(cap_gb: float | None, found: int) -> int:
    return found if cap_gb is None else int(cap_gb * GB)
