"""The keys of /_control that every stand-in has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.faults import Kill

if TYPE_CHECKING:
    from cloudrec_sandbox.core.book import Entry
    from cloudrec_sandbox.core.clock import Clock
    from cloudrec_sandbox.core.engine import Engine

_KEYS = ("speed", "real_times", "advance_s", "durations", "faults", "kill", "reset")


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
            **{name: key.read(world) for name, key in engine.book.settings.items()},
        }


def calls(engine: Engine[Any, Any], since: int) -> list[dict[str, Any]]:
    """Return the calls after number `since`."""
    with engine.lock:
        return [dict(line) for line in engine.calls[since:]]


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
