"""Compare policies for spot nodes on a folder of capacity traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.planning.spot.compare import compare
from cloudrec.planning.spot.traces import NodeCounts

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.planning.spot.compare import Result, Scenario
    from cloudrec.planning.spot.traces import Trace

_LARGEST_BYTES = 32 * 1024 * 1024  # of a file: 4 MiB hold a year of one-minute values
_MOST_FILES = 100


def read_traces(folder: Path, nodes: int | None = None) -> list[Trace]:
    """Return the traces of a folder's JSON files, in the order of their names.

    The values of all files are 0 and 1, or, if any is larger, numbers of nodes.

    Args:
        folder: the folder.
        nodes: the nodes that the run needs, where the files have numbers of nodes; None for the largest.

    Raises:
        SpecError: the folder or a file cannot be read, or is no trace.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise SpecError(
            f"{folder} cannot be read: {error.strerror}", remedy="give a folder with one JSON file a zone"
        ) from error
    if not paths:
        raise SpecError(f"{folder} has no JSON file", remedy="give a folder with one JSON file a zone")
    if len(paths) > _MOST_FILES:
        raise SpecError(
            f"{folder} has {len(paths)} JSON files, and at most {_MOST_FILES} can be compared",
            remedy="give a folder with the zones that the run may use",
        )
    counts = [_read(path) for path in paths]
    most = max(each.most for each in counts)
    if most > 1 and (nodes or 0) > most:
        raise SpecError(
            f"the traces of {folder} count at most {most} nodes, and the run needs {nodes}",
            remedy=f"give at most {most} nodes",
        )
    return [each.trace(1 if most <= 1 else nodes or most) for each in counts]


def _read(path: Path) -> NodeCounts:
    remedy = 'a trace is {"metadata": {"gap_seconds": N}, "data": [0 or 1, ...]}, or has numbers of nodes'
    try:
        size = path.stat().st_size
        if size > _LARGEST_BYTES:
            raise SpecError(
                f"{path} has {size:,} bytes, and at most {_LARGEST_BYTES:,} are read", remedy=remedy
            )
        return NodeCounts.of(path.stem, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}", remedy="make it readable") from error
    except ValueError as error:  # JSON and UTF-8 errors are of this kind, too
        raise SpecError(f"{path} is no trace: {error}", remedy=remedy) from error


def spot_plan(scenario: Scenario) -> list[Result]:
    """Return what each policy achieves on the traces; SpecError if these are too short."""
    shortest = min(scenario.traces, key=lambda trace: trace.length_s)
    if shortest.length_s < scenario.needed_s:
        needed = f"a run needs {scenario.needed_s / 3600:.1f} h"
        raise SpecError(
            f"{shortest.name} covers {shortest.length_s / 3600:.1f} h, and {needed}",
            remedy="give longer traces, or less with --work or --deadline",
        )
    return compare(scenario)
