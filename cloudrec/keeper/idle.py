"""When GPU nodes have been idle for so long that the guard scales them to zero (`--autostop`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.keeper.meter import LiveNode, Tariff

IDLE = "idle.json"  # the key in the guard's ConfigMap


@dataclass(frozen=True, kw_only=True)
class IdleRecord:
    """Since when no run is active, in seconds since the epoch.

    Attributes:
        active: when a run was last active; 0 if none was since the guard began.
        stopped: when the GPU nodes were scaled to zero; 0 if they were not.
    """

    active: float = 0.0
    stopped: float = 0.0

    @classmethod
    def of(cls, text: str) -> IdleRecord:
        """Return the record from the ConfigMap's text; an empty one if it is invalid."""
        try:
            return record_of(cls, safe_object(text))
        except ValueError:
            return cls()

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, kw_only=True)
class Idleness:
    """What a round finds.

    Attributes:
        record: the record to keep.
        idle_s: seconds for which the GPU nodes have been idle; None if there are none, or a run is active.
    """

    record: IdleRecord
    idle_s: float | None


def gpu_nodes(nodes: Iterable[LiveNode], tariffs: Iterable[Tariff]) -> list[LiveNode]:
    """Return the nodes of pools with GPUs."""
    pools = {tariff.pool for tariff in tariffs if tariff.gpus}
    return [node for node in nodes if node.pool in pools]


def idleness(record: IdleRecord, gpus: Sequence[LiveNode], *, is_active: bool, now: float) -> Idleness:
    """Return for how long GPU nodes have been idle: since the last run, or since the newest of them began.

    Args:
        record: the record of the last round.
        gpus: the GPU nodes.
        is_active: whether a run is in progress or waits for nodes.
        now: the time, in seconds since the epoch.
    """
    if is_active:
        return Idleness(record=replace(record, active=now, stopped=0.0), idle_s=None)
    if record.active > now:  # of a keeper whose clock was ahead
        record = replace(record, active=now)
    if not gpus:
        return Idleness(record=record, idle_s=None)
    # `up` has brought the nodes back, or they do not end although they were scaled to zero.
    newest = max(node.created for node in gpus)
    kept = record if record.stopped >= newest else replace(record, stopped=0.0)
    return Idleness(record=kept, idle_s=max(now - max(record.active, newest), 0.0))
