"""A run's logs, rank by rank, through all its restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import UsageError
from cloudrec.launchers import launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.launchers.base.run_folder import RunFolder


def read_logs(
    run: RunFolder, *, rank: int = 0, follow: bool = False, tail: int | None = None
) -> Iterator[str]:
    """Yield the lines that one rank has printed, without their line ends.

    Args:
        run: the run.
        rank: the rank.
        follow: continue with new lines until the run ends.
        tail: number of present lines to begin with; None for all of them.

    Raises:
        UsageError: the run has no such rank.
    """
    spec = run.spec()
    if not 0 <= rank < spec.world_size:
        last = spec.world_size - 1
        ranks = "only rank 0" if last == 0 else f"ranks 0 to {last}"
        raise UsageError(f"the run {run.name!r} has no rank {rank}", remedy=f"it has {ranks}")
    if tail is not None and tail < 0:
        raise UsageError(f"--tail is {tail}; it must be at least 0")
    return launcher(spec.launcher).logs(run, rank=rank, follow=follow, tail=tail)
