"""What everything in the cluster works with: the store, the mirror, events, work that is due later."""

from __future__ import annotations

import heapq
import itertools
import secrets
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.errors import ApiError
from cloudrec_sandbox.kubernetes.storage.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.core.clock import Clock
    from cloudrec_sandbox.kubernetes.storage.store import Store

_LOOK_S = 0.05  # how often virtual timers are checked, since the clock can be advanced
_SAME_WITHIN_S = 600.0
_KEPT_EVENTS = 5000


class Cluster:
    """The store and its surroundings, for the parts of the control plane and of nodes."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.mirror = Mirror(store)
        self._events: dict[tuple[str, ...], tuple[str, str, int, float]] = {}

    def now(self) -> float:
        """Return the virtual time."""
        return self.clock.now()

    def timestamp(self) -> str:
        """Return the virtual time as objects have it."""
        return self.store.timestamp()

    def patch_status(self, resource: str, obj: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Change some members of an object's status; an object that is gone is ignored."""
        metadata = obj["metadata"]
        self.attempt(
            lambda: self.store.patch(
                resource, metadata.get("namespace"), metadata["name"], {"status": dict(status)}, "status"
            )
        )

    def attempt(self, call: Callable[..., object], *arguments: Any) -> bool:  # noqa: ANN401 - the call's own
        """Do what a deletion may have overtaken meanwhile; return whether it was done."""
        try:
            call(*arguments)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def event(
        self,
        obj: Mapping[str, Any],
        reason: str,
        message: str,
        *,
        source: str,
        host: str = "",
        warning: bool = False,
        field: str = "",
    ) -> None:
        """Record an event about an object; a repeated event is counted."""
        metadata = obj["metadata"]
        space = metadata.get("namespace") or "default"
        key = (metadata.get("uid", ""), reason, message, source, field)
        known = self._events.get(key)
        now, stamp = self.now(), self.timestamp()
        if known and now - known[3] < _SAME_WITHIN_S:
            place, name, count, _ = known
            change = {"count": count + 1, "lastTimestamp": stamp}
            if self.attempt(lambda: self.store.patch("events", place, name, change)):
                # The object may be gone, or changed by another part: that change wakes the caller again.
                self._events[key] = (place, name, count + 1, now)
                return
        name = f"{metadata['name']}.{secrets.token_hex(8)}"
        involved = {
            "apiVersion": obj.get("apiVersion", "v1"),
            "kind": obj.get("kind", ""),
            "name": metadata["name"],
            "uid": metadata.get("uid", ""),
            **({"namespace": metadata["namespace"]} if metadata.get("namespace") else {}),
            **({"fieldPath": field} if field else {}),
        }
        body = {
            "metadata": {"name": name, "namespace": space},
            "involvedObject": involved,
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "count": 1,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "eventTime": None,
            "source": {"component": source, **({"host": host} if host else {})},
            "reportingComponent": source,
            "reportingInstance": host,
        }
        if self._create_event(body):
            if len(self._events) > _KEPT_EVENTS:
                self._events.clear()
            self._events[key] = (space, name, 1, now)

    def _create_event(self, body: dict[str, Any]) -> bool:
        try:
            self.store.create("events", body)
        except ApiError as error:
            if error.status in (403, 404):  # its namespace is being deleted, or gone
                return False
            raise
        return True


class Worker:
    """One thread that runs steps, now or later, one at a time, and each key's step once."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._ready: dict[object, Callable[[], None]] = {}
        self._gathered: dict[object, tuple[float, Callable[[], None]]] = {}
        self._later: list[tuple[float, int, object, Callable[[], None]]] = []
        self._order = itertools.count()
        self._is_closed = False
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the present step is finished first."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def soon(self, key: object, step: Callable[[], None]) -> None:
        """Run a step; it is dropped if one with its key waits already."""
        with self._condition:
            self._ready[key] = step
            self._condition.notify_all()

    def gather(self, pause_s: float, key: object, step: Callable[[], None]) -> None:
        """Run a step after a real pause, in which more reasons for it may come."""
        with self._condition:
            self._gathered.setdefault(key, (time.monotonic() + pause_s, step))
            self._condition.notify_all()

    def later(self, seconds: float, key: object, step: Callable[[], None]) -> None:
        """Run a step after `seconds` of virtual time."""
        with self._condition:
            heapq.heappush(self._later, (self._clock.now() + seconds, next(self._order), key, step))
            self._condition.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing is due; return whether that came within the real seconds given."""
        end = time.monotonic() + timeout_s
        with self._condition:
            while self._ready or self._is_busy or (self._later and self._later[0][0] <= self._clock.now()):
                if time.monotonic() > end:
                    return False
                self._condition.wait(_LOOK_S)
        return True

    def _run(self) -> None:
        while (step := self._next()) is not None:
            try:
                step()
            except Exception:  # noqa: BLE001 - one broken object must not stop the others; the trace is printed
                print(traceback.format_exc(), file=sys.stderr, flush=True)

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            self._is_busy = False
            while not self._is_closed:
                self._take_due()
                if self._ready:
                    self._is_busy = True
                    return self._ready.pop(next(iter(self._ready)))
                self._condition.notify_all()
                self._condition.wait(_LOOK_S if self._later or self._gathered else None)
        return None

    def _take_due(self) -> None:
        now = self._clock.now()
        while self._later and self._later[0][0] <= now:
            _, _, key, step = heapq.heappop(self._later)
            self._ready[key] = step
        real = time.monotonic()
        for key in [key for key, (due, _) in self._gathered.items() if due <= real]:
            self._ready[key] = self._gathered.pop(key)[1]
