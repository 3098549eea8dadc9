"""Which ways a run takes where several give the same result: a reason when a run is slower than expected."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class ComputePaths:
    """The ways of the steps so far.

    Attributes:
        look_up: direct, past torchrec's exchanges, which only a world of one can do; or torchrec.
        pipeline: plain, or torchrec's: sparse_dist, fused_sparse_dist, semi_sync or prefetch.
        dense: eager or compiled; with `+cuda_graph` where full batches are replayed.
    """

    look_up: str
    pipeline: str
    dense: str

    def to_json(self) -> dict[str, str]:
        """Return the fields in JSON types."""
        return asdict(self)
