"""The nearest right name for a wrong one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Return a remedy: the nearest known name, or all of them when none is near.

    Args:
        wrong: the name that is not known.
        known: the names that are.
        cutoff: how like it the nearest name must be, from 0 to 1.
    """
    names = sorted(known)
    plain = {name.lower().replace("-", "_"): name for name in names}
    near = get_close_matches(wrong.lower().replace("-", "_"), plain, n=1, cutoff=cutoff)
    if near:
        return f"did you mean {plain[near[0]]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"
