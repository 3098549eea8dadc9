"""A cluster: its objects, who may come in, and what its other half declares for /_control."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol
from uuid import NAMESPACE_URL, uuid4, uuid5

from cloudrec.sandbox.book import Book
from cloudrec.sandbox.kubernetes import rbac, schema
from cloudrec.sandbox.kubernetes.collector import Collector
from cloudrec.sandbox.kubernetes.definitions import Definitions
from cloudrec.sandbox.kubernetes.reads import Pages
from cloudrec.sandbox.kubernetes.rules import Rules
from cloudrec.sandbox.kubernetes.store import Store
from cloudrec.sandbox.kubernetes.watch import Interruption
from cloudrec.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.sandbox.kubernetes.resources import Resource

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Controllers(Protocol):
    """The half that acts on objects: controllers, scheduler, nodes."""

    def reset(self) -> None:
        """Be as at the start, once all objects have been cleared."""

    def close(self) -> None:
        """End all its threads and processes."""


class Cluster(World):
    """One cluster. Time runs as outside, since its containers are real processes."""

    def __init__(self, durations: Mapping[str, float]) -> None:
        super().__init__(durations)
        self.clock.speed = 1.0
        self.identity = str(uuid4())
        self.store = Store(self.clock, lock=self.lock)
        self.store.policy = Rules(self.store)
        self.controllers: Controllers | None = None
        self.pages = Pages()
        self.furniture: set[str] = set()
        self.definitions = Definitions(self)
        self.interruption = Interruption()
        self.collector = Collector(self)
        self.found()

    def node_of(self, resource: Resource) -> schema.Node:
        """What objects of a kind look like."""
        if resource.custom:
            return self.definitions.node(resource.api_version, resource.kind)
        return schema.built_in(resource.group, resource.version, resource.kind)

    def found(self) -> None:
        """Make what every cluster has; its identity stays the same through a reset."""
        for name in NAMESPACES:
            self.store.create("namespaces", {"metadata": {"name": name}})
            self._identify(name)
        rbac.furnish(self.store)
        with self.lock:
            table = self.store.table
            entries = (entry for key in list(table.keys()) for entry in table.all(key))
            self.furniture = {entry.obj["metadata"]["uid"] for entry in entries}

    def identify_as(self, identity: str) -> None:
        """Be another cluster at the same address: its namespaces get other uids."""
        self.identity = identity
        for name in NAMESPACES:
            self._identify(name)
            namespace = self.store.get("namespaces", None, name)
            if namespace is not None:
                self.furniture.add(namespace["metadata"]["uid"])

    def export(self) -> NoReturn:
        """Never: a process cannot be saved."""
        raise ValueError("containers are processes: a cluster cannot be saved, nor taken up again")

    def clear(self) -> None:
        """Forget all objects but those that every cluster has."""
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
