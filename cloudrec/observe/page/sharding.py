"""Where a run's tables are: its sharding plan, by table and by rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.home import read_text
from cloudrec.observe.metrics import finite
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NAME = "sharding_plan.json"
_BYTES = {"fp32": 4, "fp16": 2}  # of one weight
_RANKS_NAMED = 8
_MOST_RANKS = 4096


@dataclass(frozen=True, kw_only=True)
class PlacedTable:
    """One table.

    Attributes:
        name: its name.
        rows: its rows.
        columns: its columns.
        sharding: how it is divided.
        kernel: the kernel that looks up its rows.
        ranks: the ranks that have a part of it.
        bytes: its weights, without optimizer state; None if their precision is not known.
    """

    name: str
    rows: int
    columns: int
    sharding: str
    kernel: str
    ranks: Sequence[int]
    bytes: int | None

    @property
    def ranks_text(self) -> str:
        """The ranks for people: the first ones, and how many more there are."""
        more = len(self.ranks) - _RANKS_NAMED
        named = ", ".join(map(str, self.ranks[:_RANKS_NAMED]))
        return f"{named} and {more} more" if more > 0 else named


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """What one rank has of the tables: how many parts, and their values and bytes."""

    rank: int
    shards: int
    values: int
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class ShardingView:
    """A sharding plan.

    Attributes:
        tables: its tables, the largest first.
        shares: the part of each rank.
    """

    tables: Sequence[PlacedTable]
    shares: Sequence[RankShare]

    @property
    def imbalance(self) -> float | None:
        """The largest share divided by the mean; 1 if all are equal, None without tables."""
        values = [share.values for share in self.shares]
        return max(values) * len(values) / sum(values) if sum(values) else None

    @property
    def bytes(self) -> int | None:
        """The weights of all tables; None if their precision is not known."""
        sizes = [table.bytes for table in self.tables]
        known = [each for each in sizes if each is not None]
        return sum(known) if len(known) == len(sizes) else None

    def share_of(self, rank: int) -> RankShare | None:
        """Return the part of a rank; None if the plan has no such rank."""
        return self.shares[rank] if rank < len(self.shares) else None


def read_sharding(folder: Path, *, precision: object) -> ShardingView | None:
    """Return the plan in a run's folder; None if there is none, or it is damaged.

    Args:
        folder: the run's folder.
        precision: the setting of the tables' weights, such as fp32.
    """
    try:
        document = safe_object(read_text(folder / NAME))
        return _view(document, _BYTES.get(str(precision)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None


def _view(document: Mapping[str, Any], width: int | None) -> ShardingView:
    ranks = int(finite(document["world_size"]) or 0)
    if not 0 < ranks <= _MOST_RANKS:
        raise ValueError(f"it has {ranks} ranks")
    values, shards = [0] * ranks, [0] * ranks
    tables = []
    for name, table in document["tables"].items():
        rows, columns = int(table["rows"]), int(table["columns"])
        for shard in table["shards"]:
            (_, high), (_, wide) = shard["rows"], shard["columns"]  # where it begins, and its size
            values[shard["rank"]] += int(high) * int(wide)
            shards[shard["rank"]] += 1
        if not table["shards"]:  # data parallel: each of its ranks has a copy
            for rank in table["ranks"]:
                values[rank] += rows * columns
                shards[rank] += 1
        tables.append(
            PlacedTable(
                name=str(name),
                rows=rows,
                columns=columns,
                sharding=str(table["sharding_type"]).replace("_", " "),
                kernel=str(table["compute_kernel"]).replace("_", " "),
                ranks=[int(rank) for rank in table["ranks"]],
                bytes=None if width is None else rows * columns * width,
            )
        )
    shares = [
        RankShare(
            rank=rank,
            shards=shards[rank],
            values=values[rank],
            bytes=None if width is None else values[rank] * width,
        )
        for rank in range(ranks)
    ]
    return ShardingView(
        tables=sorted(tables, key=lambda each: (-each.rows * each.columns, each.name)), shares=shares
    )
