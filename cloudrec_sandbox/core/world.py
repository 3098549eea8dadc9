"""What a stand-in knows: time, the agenda, durations, the state of each service, and the account's bill."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cloudrec_sandbox.core.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Charge:
    """What one resource costs now: its kind, its id, and USD an hour."""

    kind: str
    id: str
    hourly_usd: float


@dataclass
class BillLine:
    """What one resource has cost: seconds with a charge, and USD."""

    seconds: float = 0.0
    usd: float = 0.0


@dataclass
class Bill:
    """The account's bill: seconds times the price at the time, by kind and id of a resource.

    Attributes:
        charges: returns what the account's resources cost now.
        moment: the virtual time up to which it is complete.
        shown: what a client's clock showed then.
        lines: what each resource has cost.
    """

    charges: Callable[[], Iterable[Charge]]
    moment: float
    shown: float
    lines: dict[tuple[str, str], BillLine] = field(default_factory=dict)

    def add(self, moment: float, present: float, shown: float) -> None:
        """Add the time up to `moment`, for which nothing has changed.

        Args:
            moment: a virtual time, not after `present`.
            present: the virtual time now.
            shown: what a client's clock shows now; the time of the bill is the client's.
        """
        if moment <= self.moment:
            return
        seconds = (shown - self.shown) * (moment - self.moment) / (present - self.moment)
        for charge in self.charges():
            line = self.lines.setdefault((charge.kind, charge.id), BillLine())
            line.seconds += seconds
            line.usd += charge.hourly_usd * seconds / _HOUR_S
        self.moment, self.shown = moment, self.shown + seconds

    def once(self, kind: str, name: str, usd: float) -> None:
        """Add what is paid by use and not by time."""
        self.lines.setdefault((kind, name), BillLine()).usd += usd

    def document(self) -> dict[str, Any]:
        """Return the bill as JSON."""
        rows = [
            {"kind": kind, "id": name, "seconds": line.seconds, "usd": line.usd}
            for (kind, name), line in sorted(self.lines.items())
        ]
        return {"usd": sum(line.usd for line in self.lines.values()), "lines": rows}


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
        self.bill: Bill | None = None  # None: no bill is kept

    def now(self) -> float:
        """Return the virtual time. It does not move while a request is answered or a step runs."""
        return self.clock.now() if self._moment is None else self._moment

    def client_now(self) -> float:
        """Return what a client's clock shows, in seconds since the epoch; see `Clock.real_times`."""
        return time.time() if self.clock.real_times else self.now()

    def until(self, shown: float) -> float:
        """Return the virtual seconds until a client's clock shows `shown`; 0 if it has passed.

        Args:
            shown: seconds since the epoch.
        """
        speed = self.clock.speed if self.clock.real_times else 1.0
        return max(0.0, (shown - self.client_now()) * speed)

    def settle(self) -> None:
        """Run every step that is due, each at its own moment; then take the present moment."""
        present = self.clock.now()
        shown = time.time() if self.clock.real_times else present
        # A step runs at the time at which it was due, so that the steps that it adds are not late either.
        while self._agenda and self._agenda[0][0] <= present:
            moment, _, step, arguments = heapq.heappop(self._agenda)
            if self.bill is not None:
                self.bill.add(moment, present, shown)
            self._moment = moment
            step(self, *arguments)
        if self.bill is not None:
            self.bill.add(present, present, shown)
        self._moment = present

    def after(self, seconds: float, step: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - the step's own
        """Run `step(world, *arguments)` after that many virtual seconds.

        `step` must be a function of a module and the arguments plain values, so that the state can be saved.
        """
        # The count keeps steps of one moment in order, and keeps the heap from comparing functions.
        heapq.heappush(self._agenda, (self.now() + seconds, next(self._order), step, arguments))

    def duration(self, name: str) -> float:
        """Return how long a change takes, in virtual seconds."""
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
        """Return all durations in force."""
        return {**self._default_durations, **self._durations}

    def state(self, kind: type[T], region: str = "") -> T:
        """Return a service's state in a region, made by `kind()` at first use; '' for global services."""
        key = (kind, region)
        if key not in self._states:
            self._states[key] = kind()
        state: T = self._states[key]
        return state

    def states(self, kind: type[T]) -> dict[str, T]:
        """Return a service's state by region."""
        return {region: state for (found, region), state in self._states.items() if found is kind}

    def keep_bill(self, charges: Callable[[], Iterable[Charge]] | None) -> None:
        """Begin a bill now, with these charges; None ends it."""
        self.settle()
        if charges is None:
            self.bill = None
        else:
            self.bill = Bill(charges=charges, moment=self.now(), shown=self.client_now())

    def export(self) -> dict[str, Any]:
        """Return all that it knows, for a snapshot to copy."""
        return {"agenda": self._agenda, "states": self._states, "durations": self._durations}

    def take_up(self, known: dict[str, Any], moment: float) -> None:
        """Take the state of a snapshot, at its moment."""
        self._agenda, self._states, self._durations = known["agenda"], known["states"], known["durations"]
        self.clock.go_to(moment)
        self._moment = moment
        if self.bill is not None:  # it continues from here
            self.bill.moment, self.bill.shown = moment, self.client_now()

    def clear(self) -> None:
        """Forget all resources, steps and durations; the clock continues."""
        self._agenda.clear()
        self._states.clear()
        self._durations.clear()
