"""The memory of a container's processes."""

from __future__ import annotations

from pathlib import Path

_KIB = 1024
_COUNTED = ("RssAnon", "RssShmem")
_FAIR = ("Pss_Anon", "Pss_Shmem")


def used(pid: int, limit: int) -> int:
    """Return the bytes that a process and all its descendants use.

    Shared memory counts once, which takes long to determine: that is done only if the simple sum is above
    `limit`.
    """
    pids = list(_tree(pid))
    simple = sum(_sum(f"/proc/{each}/status", _COUNTED) for each in pids)
    if simple <= limit:
        return simple
    return sum(_sum(f"/proc/{each}/smaps_rollup", _FAIR) for each in pids)


def _tree(pid: int) -> list[int]:
    found, rest = [], [pid]
    while rest:
        each = rest.pop()
        found.append(each)
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                rest += map(int, (task / "children").read_text(encoding="ascii").split())
        except OSError:  # it has just ended
            continue
    return found


def _sum(path: str, names: tuple[str, ...]) -> int:
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except OSError:  # it has just ended, or is another's
        return 0
    wanted = (line.split() for line in lines if line.partition(":")[0] in names)
    return sum(int(parts[1]) for parts in wanted) * _KIB
