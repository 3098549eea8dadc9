"""Which rank held up the others, from what the pods of a failed launch have kept in the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cloudrec.cluster.flight import from_log, read_dump, verdict
from cloudrec.launch._remote.results import place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from cloudrec.launch.place import Place
    from cloudrec.launch.runspec import RunSpec

_DUMP = re.compile(r"pods/([^/]+)/flight_recorder/[^/]*?(\d+)")
_LOG = re.compile(r"pods/([^/]+)/rank-(\d+)\.log")
_TIMEOUT = re.compile(r"[Tt]imed? ?-?out")
_LOGS_READ = 8  # of ranks; they all say the same


def is_suspect(cause: str | None) -> bool:
    """Tell whether a cause speaks of ranks that waited for each other in vain."""
    return bool(cause) and bool(_TIMEOUT.search(cause or ""))


def who_held_up(spec: RunSpec, pods: Collection[Mapping[str, Any]]) -> str:
    """Return the verdict of the flight recorders, or else of the ranks' logs; empty where they give none.

    Args:
        spec: the run.
        pods: those of the launch that failed; what others left is of no interest.
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
        if said := from_log(text.splitlines(), rank=int(found[2])):
            return said
    return ""
