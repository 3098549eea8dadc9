"""A cluster: its objects, its users, and the settings of its other half."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from uuid import NAMESPACE_URL, uuid4, uuid5

from cloudrec_sandbox.core.book import Book
from cloudrec_sandbox.core.world import World
from cloudrec_sandbox.kubernetes.api import rbac
from cloudrec_sandbox.kubernetes.api.collector import Collector
from cloudrec_sandbox.kubernetes.api.definitions import Definitions
from cloudrec_sandbox.kubernetes.api.reads import Pages
from cloudrec_sandbox.kubernetes.api.watch import Interruption
from cloudrec_sandbox.kubernetes.objects import schema
from cloudrec_sandbox.kubernetes.rules import Rules
from cloudrec_sandbox.kubernetes.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Controllers(Protocol):
    """The half that acts on objects: controllers, scheduler, nodes."""

    def reset(self) -> None:
        """Start again, once all objects have been cleared."""

    def close(self) -> None:
        """Stop all its threads and processes."""


class Siblings(Protocol):
    """The further clusters of the same process, each with its own API server."""

    def announcements(self) -> list[dict[str, Any]]:
        """Return what a client needs to reach each of them."""

    def have(self, number: int) -> None:
        """Make clusters until there are so many; none is removed."""


class Cluster(World):
    """One cluster. Its time runs as outside, since its containers are real processes."""

    def __init__(self, durations: Mapping[str, float]) -> None:
        super().__init__(durations)
        self.clock.speed = 1.0
        self.identity = str(uuid4())
        self.store = Store(self.clock, lock=self.lock)
        self.store.policy = Rules(self.store)
        self.controllers: Controllers | None = None
        self.siblings: Siblings | None = None
        self.pages = Pages()
        self.furniture: set[str] = set()
        self.definitions = Definitions(self)
        self.interruption = Interruption()
        self.collector = Collector(self)
        self.found()

    def node_of(self, resource: Resource) -> schema.Node:
        """Return the schema of a kind's objects."""
        if resource.custom:
            return self.definitions.node(resource.api_version, resource.kind)
        return schema.built_in(resource.group, resource.version, resource.kind)

    def found(self) -> None:
        """Make the objects that every cluster has; the cluster's identity survives a reset."""
        for name in NAMESPACES:
            self.store.create("namespaces", {"metadata": {"name": name}})
            self._identify(name)
        rbac.furnish(self.store)
        with self.lock:
            table = self.store.table
            entries = (entry for key in list(table.keys()) for entry in table.all(key))
            self.furniture = {entry.obj["metadata"]["uid"] for entry in entries}

    def identify_as(self, identity: str) -> None:
        """Become another cluster at the same address: its namespaces get other uids."""
        self.identity = identity
        for name in NAMESPACES:
            self._identify(name)
            namespace = self.store.get("namespaces", None, name)
            if namespace is not None:
                self.furniture.add(namespace["metadata"]["uid"])

    def export(self) -> NoReturn:
        """Raise ValueError: a running process cannot be saved."""
        raise ValueError("containers are processes: a cluster cannot be saved, nor taken up again")

    def clear(self) -> None:
        """Remove all objects but those that every cluster has."""
        super().clear()
        self.pages.clear()
        self.store.tokens.clear()
        self.store.clear()
        self.found()
        if self.controllers is not None:
            self.controllers.reset()

    def _identify(self, name: str) -> None:
        with self.lock:
            namespace = self.store.get("namespaces", None, name)
            if namespace is not None:
                namespace["metadata"]["uid"] = str(uuid5(NAMESPACE_URL, f"{self.identity}/{name}"))
                self.store.table.put("namespaces", ("", name), namespace)


book: Book[Cluster] = Book()
"""What modules declare: /_control's keys, durations, inventories."""
