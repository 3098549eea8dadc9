"""The nearest right name for a wrong one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return a remedy: the nearest known name, or all of them when none is near."""
    names = sorted(known)
    plain = {name.lower().replace("-", "_"): name for name in names}
    near = get_close_matches(wrong.lower().replace("-", "_"), plain, n=1, cutoff=0.5)
    if near:
        return f"did you mean {plain[near[0]]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"
