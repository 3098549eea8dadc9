"""The places of a run's files below a storage, and torchrun's range of nodes."""

from __future__ import annotations


def run_uri(storage: str, name: str) -> str:
    """Return the URI or path of a run's folder in a storage; empty without a storage."""
    return f"{storage.rstrip('/')}/runs/{name}" if storage else ""


def checkpoints_uri(results: str) -> str:
    """Return the default place of checkpoints in a run's folder; empty without a folder."""
    return f"{results.rstrip('/')}/checkpoints" if results else ""


def node_range(fewest: int, most: int) -> str:
    """Return the value of torchrun's --nnodes: `4`, or `2:4` for a run that may shrink."""
    return str(most) if fewest == most else f"{fewest}:{most}"


def storage_of(results: str) -> str:
    """Return the storage in which a run's folder is: the inverse of `run_uri`."""
    return results.rstrip("/").rpartition("/runs/")[0]


def code_name(digest: str) -> str:
    """Return the name of a packed working folder in a storage; it is the same for all runs of this code."""
    return f"code/{digest}.tar.gz"


def turns_uri(storage: str, run: str) -> str:
    """Return the URI of the files that say which cluster has a run of several clusters.

    It is beside the runs, since keepers may write there and not into the runs' folders.
    """
    return f"{storage.rstrip('/')}/turns/{run}"
