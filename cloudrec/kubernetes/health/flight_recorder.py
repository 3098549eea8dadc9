"""Finds the rank for which the others waited when a collective timed out.

The sources are the dumps of torch's flight recorder, and the messages of NCCL's watchdog in a rank's log.
"""

from __future__ import annotations

import io
import pickle
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TIMEOUT = re.compile(
    r"[Ww]atchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)"
    r".*?Timeout\(ms\)=(\d+)"
)
_LAST = re.compile(r"last enqueued NCCL work: (-?\d+), last completed NCCL work: (-?\d+)")
_GLOO = re.compile(r"Timed out waiting (\d+)ms for (\w+) operation")
_RANKS_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Position:
    """The newest collective of a rank in one process group.

    Attributes:
        rank: the rank.
        group: the process group's name.
        number: the number of the last collective that the rank has begun, counted from 1.
        operation: the name of that collective.
        done: whether it has ended.
    """

    rank: int
    group: str
    number: int
    operation: str
    done: bool


class _Plain(pickle.Unpickler):
    """Unpickles numbers, texts, lists and mappings only.

    The dump comes from the storage, where any pod can write, and a pickle with classes can run code.
    """

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - never returns
        raise pickle.UnpicklingError(f"it contains {module}.{name}, and a dump contains no classes")


def read_dump(rank: int, dump: bytes) -> list[Position]:
    """Return a rank's position in each group when it wrote its dump; [] if the dump is damaged."""
    try:
        document = _Plain(io.BytesIO(dump)).load()
    except Exception:  # noqa: BLE001 - a damaged pickle raises errors of many types
        return []
    entries = document.get("entries") if isinstance(document, dict) else None
    newest: dict[str, Position] = {}
    for entry in entries or []:
        found = _position(rank, entry) if isinstance(entry, dict) else None
        if found is not None and (found.group not in newest or newest[found.group].number <= found.number):
            newest[found.group] = found
    return list(newest.values())


def verdict(positions: Iterable[Position]) -> str:
    """Return a sentence on the ranks that are behind, and their collective; empty if none are."""
    groups: dict[str, list[Position]] = {}
    for position in positions:
        groups.setdefault(position.group, []).append(position)
    for group, found in sorted(groups.items()):
        least, most = min(found, key=_progress), max(found, key=_progress)
        if _progress(least) == _progress(most):
            continue
        behind = sorted(each.rank for each in found if _progress(each) == _progress(least))
        doing = "has finished" if least.done else "is in"
        return (
            f"{_ranks(behind)} held up the others: the last collective it {doing} is {least.operation} "
            f"#{least.number} of group {group}, while others are at {most.operation} #{most.number}"
        )
    return ""


def from_log(lines: Iterable[str], *, rank: int) -> str:
    """Return a sentence on the collective that timed out, from a rank's log; empty if none did."""
    waited, last = "", ""
    for line in lines:
        if found := _TIMEOUT.search(line):
            seconds = int(found[3]) / 1000
            waited = f"rank {rank} waited {seconds:g} s in vain for {found[2]} #{found[1]}"
        elif found := _GLOO.search(line):
            waited = f"rank {rank} waited {int(found[1]) / 1000:g} s in vain for a {found[2]} of another rank"
        if found := _LAST.search(line):
            last = f"; the last collective that it began is #{found[1]}, the last that ended #{found[2]}"
    return waited + last if waited else ""


def _position(rank: int, entry: Mapping[str, Any]) -> Position | None:
    # Some versions of torch name it `seq_id`. Point-to-point calls are no collectives of the whole group.
    number = entry.get("collective_seq_id", entry.get("seq_id"))
    if not isinstance(number, int) or entry.get("is_p2p"):
        return None
    group = entry.get("process_group")
    named: Sequence[object] = group if isinstance(group, list | tuple) else [entry.get("pg_id", 0)]
    return Position(
        rank=rank,
        group=str(named[-1] or named[0]),
        number=number,
        operation=str(entry.get("profiling_name", "a collective")).removeprefix("nccl:"),
        done=entry.get("state") == "completed",
    )


def _progress(position: Position) -> tuple[int, bool]:
    return position.number, position.done


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:_RANKS_SHOWN])
    more = f" and {len(ranks) - _RANKS_SHOWN} more" if len(ranks) > _RANKS_SHOWN else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
