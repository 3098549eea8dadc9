"""All resources of the subscription, by id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.azure.arm.paths import Path, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.core.world import World


@dataclass
class Resource:
    """One resource. `document` is what GET returns, with `properties`."""

    id: str
    type: str
    document: dict[str, Any]
    made_at: float
    changed_at: float
    busy: str = ""  # the id of the operation that holds it
    deleting: bool = False
    etag: str = field(default_factory=lambda: str(uuid4()))
    facts: dict[str, Any] = field(default_factory=dict)  # what the service knows and GET does not show

    @property
    def key(self) -> str:
        """Return the id in lower case, for comparisons."""
        return self.id.lower()

    @property
    def path(self) -> Path:
        """Return the id, parsed."""
        return parse(self.id)

    @property
    def name(self) -> str:
        """Return its name."""
        return self.id.rpartition("/")[2]

    @property
    def properties(self) -> dict[str, Any]:
        """Return the document's properties, which it has from its creation."""
        found: dict[str, Any] = self.document.setdefault("properties", {})
        return found

    @property
    def location(self) -> str:
        """Return the region, in lower case without spaces; '' if it has none."""
        return region_of(self.document)


def region_of(document: Mapping[str, Any]) -> str:
    """Return the region that a document names, in lower case without spaces; '' if it names none."""
    return str(document.get("location") or "").lower().replace(" ", "")


@dataclass
class Store:
    """The resources that exist, by id in lower case."""

    resources: dict[str, Resource] = field(default_factory=dict)

    def find(self, id_: str) -> Resource | None:
        """Return the resource with an id, ignoring case."""
        return self.resources.get(id_.rstrip("/").lower())

    def add(self, resource: Resource) -> None:
        """Add a resource."""
        self.resources[resource.key] = resource

    def of_type(self, kind: str, under: str = "") -> Iterator[Resource]:
        """Yield all resources of a type (Microsoft.Network/natGateways), below the id `under`."""
        wanted, prefix = kind.lower(), f"{under.rstrip('/').lower()}/"
        for key, resource in list(self.resources.items()):
            if resource.type.lower() == wanted and (not under or key.startswith(prefix)):
                yield resource

    def below(self, id_: str) -> list[Resource]:
        """Return everything that is part of a resource, or in a group."""
        prefix = f"{id_.rstrip('/').lower()}/"
        return [resource for key, resource in self.resources.items() if key.startswith(prefix)]


def store(world: World) -> Store:
    """Return the store of a world."""
    return world.state(Store)
