"""The API server's keys of /_control, and what /_control/state shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.book import Decisions, Entry
from cloudrec_sandbox.kubernetes.api import definitions
from cloudrec_sandbox.kubernetes.api.world import book

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.kubernetes.api.world import Cluster

_ITS_OWN = {"events", "nodes", "leases", "csinodes", "endpoints", "endpointslices"}


def _write_history(world: Cluster, value: Any) -> None:  # noqa: ANN401 - JSON
    if int(value) < 1:
        raise ValueError(f"history is {value}; a watch needs at least 1 change to begin from")
    world.store.table.limit = int(value)


def _compact(world: Cluster, value: Any) -> None:  # noqa: ANN401 - JSON
    if value:
        world.store.table.compact()
        world.pages.clear()


def _interrupt(world: Cluster, value: Any) -> None:  # noqa: ANN401 - JSON
    world.interruption.order(value)
    world.store.table.changed.notify_all()


def _siblings(world: Cluster) -> list[dict[str, Any]]:
    return world.siblings.announcements() if world.siblings is not None else []


def _make_siblings(world: Cluster, value: Any) -> None:  # noqa: ANN401 - JSON
    if world.siblings is None:
        raise ValueError("siblings: this server is one of several itself; ask the first one")
    world.siblings.have(int(value))


def _definitions(world: Cluster) -> list[str]:
    return [entry.obj["metadata"]["name"] for entry in world.store.table.all(definitions.KEY)]


book.setting(
    "identity",
    read=lambda world: world.identity,
    write=lambda world, value: world.identify_as(str(value)),
)
book.setting(
    "tokens",
    read=lambda world: world.store.tokens.document(),
    write=lambda world, value: world.store.tokens.order(value),
)
book.setting(
    "issuer",
    read=lambda world: {"url": world.store.tokens.issuer.url, "azure": world.store.tokens.issuer.azure},
    write=lambda world, value: world.store.tokens.issue_as(value),
)
book.setting(
    "webhook_lag_s",  # the age in seconds at which the operators' webhooks see a new object
    read=lambda world: world.store.webhook_lag_s,
    write=lambda world, value: setattr(world.store, "webhook_lag_s", float(value)),
)
book.setting("siblings", read=_siblings, write=_make_siblings)
book.setting("decisions", read=Decisions.read, write=Decisions.forget)
book.setting("history", read=lambda world: world.store.table.limit, write=_write_history)
book.setting("compact", read=lambda world: world.store.table.oldest, write=_compact)
book.setting("watches", read=lambda world: world.interruption.how, write=_interrupt)
book.setting(
    "crds",
    read=_definitions,
    write=lambda world, value: definitions.install(world.store, value),
)
book.durations({definitions.DELAY: 0.05})


@book.inventory
def _objects(world: Cluster) -> Iterator[Entry]:
    """Yield all objects but those that every cluster has."""
    for key in set(world.store.table.keys()) - _ITS_OWN:
        resource = world.store.resources.by_key(key)
        for entry in world.store.table.all(key):
            metadata = entry.obj["metadata"]
            if metadata["uid"] not in world.furniture:
                place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
                yield Entry(
                    resource.group or "core",
                    resource.plural,
                    place + metadata["name"],
                    pending="deletionTimestamp" in metadata,
                )
