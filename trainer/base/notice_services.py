"""The names of the clouds whose notices of a preemption the trainer can read."""

from __future__ import annotations

from pathlib import Path
from pkgutil import iter_modules

_CLOUDS = Path(__file__).resolve().parents[1] / "preempt" / "clouds"


def notice_services() -> tuple[str, ...]:
    """Return the names of the modules in `preempt/clouds`, sorted; imports none."""
    return tuple(sorted(module.name for module in iter_modules([str(_CLOUDS)])))


def check_notice_service(name: str) -> str:
    """Return a name if it is known; ValueError lists the known ones if it is not."""
    known = notice_services()
    if name not in known:
        raise ValueError(f"input should be one of {', '.join(known)}")
    return name
