"""What a stand-in knows: time, the agenda, durations, each service's own state."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from cloudrec.sandbox.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


class World:
    """One account of a cloud. Everything but the clock is used under `lock`."""

    def __init__(self, default_durations: Mapping[str, float]) -> None:
        self.lock = threading.RLock()
        self.clock = Clock()
        self._moment: float | None = None
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._states: dict[tuple[type, str], Any] = {}
        self._default_durations = default_durations
        self._durations: dict[str, float] = {}

    def now(self) -> float:
        """The virtual moment; it stands still while a request is answered or a step of the agenda is done."""
        return self.clock.now() if self._moment is None else self._moment

    def settle(self) -> None:
        """Do what has become due, each thing at its own moment, and take up the present one."""
        present = self.clock.now()
        while self._agenda and self._agenda[0][0] <= present:
            self._moment, _, step, arguments = heapq.heappop(self._agenda)
            step(self, *arguments)
        self._moment = present

    def after(self, seconds: float, step: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - the step's own
        """Have `step(world, *arguments)` done that many virtual seconds from now.

        `step` must be a function of a module and the arguments plain values, so that the state can be saved.
        """
        heapq.heappush(self._agenda, (self.now() + seconds, next(self._order), step, arguments))

    def duration(self, name: str) -> float:
        """How long something takes, in virtual seconds."""
        return self._durations.get(name, self._default_durations[name])

    def set_durations(self, changes: Mapping[str, float]) -> None:
        """Change durations: by name, by the part of a name before a dash (eks-cluster), or all by `*`."""
        known = self._default_durations
        for name, seconds in changes.items():
            names = [each for each in known if name in ("*", each) or each.startswith(f"{name}-")]
            if not names:
                raise ValueError(f"unknown duration {name!r}; there are: {', '.join(sorted(known))}")
            self._durations.update(dict.fromkeys(names, float(seconds)))

    def durations(self) -> dict[str, float]:
        """All durations in force."""
        return {**self._default_durations, **self._durations}

    def state(self, kind: type[T], region: str = "") -> T:
        """A service's own state, made by `kind()` when first asked for; '' for what knows no regions."""
        key = (kind, region)
        if key not in self._states:
            self._states[key] = kind()
        state: T = self._states[key]
        return state

    def states(self, kind: type[T]) -> dict[str, T]:
        """A service's state by region."""
        return {region: state for (found, region), state in self._states.items() if found is kind}

    def export(self) -> dict[str, Any]:
        """All that it knows, for a snapshot to copy."""
        return {"agenda": self._agenda, "states": self._states, "durations": self._durations}

    def take_up(self, known: dict[str, Any], moment: float) -> None:
        """Know what a snapshot knew, at its moment."""
        self._agenda, self._states, self._durations = known["agenda"], known["states"], known["durations"]
        self.clock.go_to(moment)
        self._moment = moment

    def clear(self) -> None:
        """Forget what exists, what is to happen and what was set; the clock goes on."""
        self._agenda.clear()
        self._states.clear()
        self._durations.clear()
