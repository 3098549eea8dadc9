"""How long the steps of `up` and `down` took last time, by kind, and the estimate of what is left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cloudrec.home import make_private, read_text, storage_error
from cloudrec_contract.safe_json import UnsafeJsonError, safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

_MOST_BYTES = 1 << 20  # some hundred kinds, of a line each
_MOST_S = 1e6  # no step takes longer than eleven days
_SCHEMA_VERSION = 1


class Durations:
    """The seconds that each step took last, in the cloud's time, kept in a file of CLOUDREC_HOME.

    A step is named by what is done and the kind of the resource, such as `aws create cluster`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._took = _read(path)

    def of(self, step: str) -> float | None:
        """Return the seconds that a step took last; None if that is not known."""
        return self._took.get(step)

    def keep(self, took: Mapping[str, float]) -> None:
        """Write down what steps took; StorageError if the file cannot be written."""
        if not took:
            return
        self._took = {**_read(self._path), **took}
        make_private(self._path.parent)
        rounded = {step: round(seconds, 1) for step, seconds in sorted(self._took.items())}
        document = {"schema_version": _SCHEMA_VERSION, "seconds": rounded}
        try:  # not atomically: a damaged file is as good as none, and a kill leaves no draft
            self._path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise storage_error(self._path, error) from error


def _read(path: Path) -> dict[str, float]:
    """Return what the file holds; nothing for a missing or damaged one, since it only feeds an estimate."""
    try:
        seconds = safe_object(read_text(path), most=_MOST_BYTES).get("seconds")
    except (OSError, UnicodeDecodeError, UnsafeJsonError):
        return {}
    if not isinstance(seconds, dict):
        return {}
    return {
        str(step): float(value)
        for step, value in seconds.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST_S
    }


def left_s(
    needs: Mapping[str, AbstractSet[str]],
    usual: Mapping[str, float | None],
    spent: Mapping[str, float],
    done: AbstractSet[str],
) -> float | None:
    """Return the seconds until all keys are done: the longest chain of steps that wait for one another.

    Args:
        needs: key -> keys that must be done first.
        usual: key -> the seconds that its step takes as a rule; None if that is not known.
        spent: key -> the seconds that a step in progress has taken so far.
        done: the keys that are done.

    Returns:
        None if a step that is left is of unknown duration.
    """
    if any(usual.get(key) is None for key in needs if key not in done):
        return None
    ends: dict[str, float] = {}

    def end(key: str) -> float:
        if key in done or key not in needs:
            return 0.0
        if key not in ends:
            ends[key] = 0.0  # a cycle cannot occur in a graph that was checked; it must not hang either
            begins = max((end(need) for need in needs[key]), default=0.0)
            ends[key] = begins + max((usual[key] or 0.0) - spent.get(key, 0.0), 0.0)
        return ends[key]

    return max((end(key) for key in needs), default=0.0)
