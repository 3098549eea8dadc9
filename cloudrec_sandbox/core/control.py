"""The keys of /_control that every stand-in has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.faults import Kill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cloudrec_sandbox.core.book import Entry
    from cloudrec_sandbox.core.clock import Clock
    from cloudrec_sandbox.core.engine import Engine
    from cloudrec_sandbox.core.world import Bill, Charge

_KEYS = ("speed", "real_times", "advance_s", "durations", "faults", "kill", "reset", "bill", "requests")


def change(engine: Engine[Any, Any], wishes: dict[str, Any]) -> None:
    """Change the named settings; ValueError for an unknown key, before any change."""
    settings = engine.book.settings
    known = [*_KEYS, *settings]
    if unknown := sorted(set(wishes) - set(known)):
        raise ValueError(f"unknown: {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    world = engine.world
    with engine.lock:
        if wishes.get("reset"):
            engine.reset()
        world.settle()
        _set_clock(world.clock, wishes)
        if "durations" in wishes:
            world.set_durations(wishes["durations"])
        _keep_records(engine, wishes)
        for name, value in wishes.items():
            if name in settings:
                settings[name].write(world, value)
        if "faults" in wishes:
            engine.faults.order(wishes["faults"] or [])
        if "kill" in wishes:
            engine.kill = Kill(**wishes["kill"]) if wishes["kill"] else None
        if "advance_s" in wishes:
            world.clock.advance(float(wishes["advance_s"]))
            world.settle()


def _keep_records(engine: Engine[Any, Any], wishes: dict[str, Any]) -> None:
    if "bill" in wishes:
        engine.world.keep_bill(_charges(engine) if wishes["bill"] else None)
    if "requests" in wishes:
        engine.keeps_requests = bool(wishes["requests"])


def _set_clock(clock: Clock, wishes: dict[str, Any]) -> None:
    clock.speed = float(wishes.get("speed", clock.speed))
    clock.real_times = bool(wishes.get("real_times", clock.real_times))


def document(engine: Engine[Any, Any]) -> dict[str, Any]:
    """Return everything that can be changed, with its value."""
    with engine.lock:
        world = engine.world
        world.settle()
        return {
            "speed": world.clock.speed,
            "real_times": world.clock.real_times,
            "virtual_time": world.now(),
            "durations": world.durations(),
            "faults": engine.faults.document(),
            "kill": engine.kill.document() if engine.kill else None,
            "calls": len(engine.calls),
            "bill": world.bill is not None,
            "requests": engine.keeps_requests,
            **{name: key.read(world) for name, key in engine.book.settings.items()},
        }


def calls(engine: Engine[Any, Any], since: int) -> list[dict[str, Any]]:
    """Return the calls after number `since`."""
    with engine.lock:
        return [dict(line) for line in engine.calls[since:]]


def requests(engine: Engine[Any, Any], since: int) -> list[dict[str, Any]]:
    """Return the requests after call number `since` that were kept, with their bodies as base64."""
    with engine.lock:
        return [dict(kept) for kept in engine.requests if kept["n"] > since]


def bill(engine: Engine[Any, Any]) -> dict[str, Any]:
    """Return what the account's resources have cost since the order `bill`; ValueError without one."""
    with engine.lock:
        engine.world.settle()
        kept: Bill | None = engine.world.bill
        if kept is None:
            raise ValueError("no bill is kept; `bill: true` begins one")
        return kept.document()


def _charges(engine: Engine[Any, Any]) -> Callable[[], Iterable[Charge]]:
    def charges() -> Iterable[Charge]:
        for of_module in engine.book.charges:
            yield from of_module(engine.world)

    return charges


def save(engine: Engine[Any, Any], wish: dict[str, str]) -> None:
    """Save the account under the name in {"name": ...}."""
    with engine.lock:
        engine.snapshots.save(wish["name"], engine.world)


def restore(engine: Engine[Any, Any], wish: dict[str, str]) -> None:
    """Restore the account that was saved under the name in {"name": ...}."""
    with engine.lock:
        engine.snapshots.restore(wish["name"], engine.world)


def state(engine: Engine[Any, Any]) -> dict[str, list[str]]:
    """Return what exists and what is being deleted: sorted "service:kind:id"."""
    with engine.lock:
        engine.world.settle()
        entries: set[Entry] = {
            each for entries_of in engine.book.inventories for each in entries_of(engine.world)
        }
    return {
        name: sorted(
            f"{entry.service}:{entry.kind}:{entry.id}" for entry in entries if entry.pending is pending
        )
        for name, pending in (("existing", False), ("pending", True))
    }
