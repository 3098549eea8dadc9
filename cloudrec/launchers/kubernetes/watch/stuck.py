"""Finds the rank for which the others waited, from the files of a failed launch in the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloudrec.kubernetes.health.flight_recorder import from_log, read_dump, verdict
from cloudrec.launchers.base.results import place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from cloudrec.launchers.base.results_store import Place
    from cloudrec.launchers.base.runspec import RunSpec

_DUMP = re.compile(r"pods/([^/]+)/flight_recorder/[^/]*?(\d+)")
_LOG = re.compile(r"pods/([^/]+)/rank-(\d+)\.log")
_TIMEOUT = re.compile(r"[Tt]imed? ?-?out")
_LOGS_READ = 8  # logs of ranks; all ranks print the same time-out


def is_suspect(cause: str | None) -> bool:
    """Return whether a cause is a time-out, as of ranks that wait for another one."""
    return bool(cause) and bool(_TIMEOUT.search(cause or ""))


def late_rank(spec: RunSpec, pods: Collection[Mapping[str, Any]]) -> str:
    """Return a sentence about the rank that was late; empty if it is unknown.

    It comes from the dumps of nccl's flight recorders, else from the ranks' logs.

    Args:
        spec: the run.
        pods: the pods of the launch that failed; files of other pods are not read.
    """
    place = place_of(spec)
    own = {f"{pod['metadata']['name']}-{pod['metadata']['uid']}" for pod in pods}
    names = list(place.sizes("pods/"))
    positions = []
    for name in names:
        found = _DUMP.fullmatch(name)
        if found and found[1] in own and (data := place.read(name)):
            positions += read_dump(int(found[2]), data)
    return verdict(positions) or _from_logs(place, names, own)


def _from_logs(place: Place, names: Collection[str], own: Collection[str]) -> str:
    logs = [(name, found) for name in names if (found := _LOG.fullmatch(name)) and found[1] in own]
    for name, found in logs[:_LOGS_READ]:
        text = (place.read(name) or b"").decode(errors="replace")
        if verdict_of_log := from_log(text.splitlines(), rank=int(found[2])):
            return verdict_of_log
    return ""
