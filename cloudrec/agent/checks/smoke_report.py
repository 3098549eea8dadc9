"""What the smoke job found, as its rank 0 writes it to summary.json and `doctor --smoke` reads it."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - a dataclass's field
from dataclasses import asdict, dataclass, fields
from typing import Any

from cloudrec.errors import DataError
from cloudrec_contract.safe_json import record_of


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """The best of the measured sizes, beside what the machines' networks can carry.

    Attributes:
        operation: all-to-all, where each rank sends to all others, or all-reduce.
        mib: the size with the best result: MiB that each rank gives.
        gb_s: GB/s. Of an all-to-all, what a rank sends to the ranks of other nodes, or to all others within
            one node; of an all-reduce, the bus bandwidth as nccl-tests define it: 2 (n - 1) / n of the bytes
            a second.
        expected_gb_s: the limit of the hardware in the same unit; None if it is not known.
    """

    operation: str
    mib: int
    gb_s: float
    expected_gb_s: float | None


@dataclass(frozen=True, kw_only=True)
class SmokeReport:
    """The result of a smoke job.

    Attributes:
        world_size: number of ranks.
        nodes: number of nodes that they are on.
        ranks: what each rank says of itself: rank, host, node, device.
        all_reduce: the sum of one from each rank, so `world_size`.
        bandwidths: one for each operation; none for a single rank.
    """

    world_size: int
    nodes: int
    ranks: tuple[Mapping[str, Any], ...]
    all_reduce: int
    bandwidths: tuple[Bandwidth, ...]

    def document(self) -> dict[str, Any]:
        """Return the part of summary.json."""
        return asdict(self)

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> SmokeReport:
        """Return the report in a summary.json; DataError if it has none."""
        try:
            return record_of(cls, {each.name: summary[each.name] for each in fields(cls)})
        except (KeyError, ValueError) as error:
            raise DataError(f"the smoke job's summary cannot be read: {error}") from error
