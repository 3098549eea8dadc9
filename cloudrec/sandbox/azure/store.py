"""All resources of the subscription, by id; the operations under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec.sandbox.azure.paths import Path, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec.sandbox.world import World


@dataclass
class Resource:
    """One thing. `document` is what GET tells, `properties` and all; `store` links it to others by id."""

    id: str
    type: str
    document: dict[str, Any]
    made_at: float
    changed_at: float
    busy: str = ""  # the operation that has it
    deleting: bool = False
    etag: str = field(default_factory=lambda: str(uuid4()))
    facts: dict[str, Any] = field(default_factory=dict)  # what the service knows and GET does not tell

    @property
    def key(self) -> str:
        """The id for comparisons."""
        return self.id.lower()

    @property
    def path(self) -> Path:
        """The id taken apart."""
        return parse(self.id)

    @property
    def name(self) -> str:
        """Its name."""
        return self.id.rpartition("/")[2]

    @property
    def properties(self) -> dict[str, Any]:
        """The document's properties, which are there from birth."""
        found: dict[str, Any] = self.document.setdefault("properties", {})
        return found

    @property
    def location(self) -> str:
        """The region, in lower case without spaces; '' for what has none."""
        return region_of(self.document)


def region_of(document: Mapping[str, Any]) -> str:
    """The region that a document names, in lower case without spaces; '' for none."""
    return str(document.get("location") or "").lower().replace(" ", "")


@dataclass
class Store:
    """What exists, by id in lower case."""

    resources: dict[str, Resource] = field(default_factory=dict)

    def find(self, id_: str) -> Resource | None:
        """The resource of an id, whatever its case."""
        return self.resources.get(id_.rstrip("/").lower())

    def add(self, resource: Resource) -> None:
        """Let it exist."""
        self.resources[resource.key] = resource

    def of_type(self, kind: str, under: str = "") -> Iterator[Resource]:
        """All of a type (Microsoft.Network/natGateways), below the id `under`."""
        wanted, prefix = kind.lower(), f"{under.rstrip('/').lower()}/"
        for key, resource in list(self.resources.items()):
            if resource.type.lower() == wanted and (not under or key.startswith(prefix)):
                yield resource

    def below(self, id_: str) -> list[Resource]:
        """All that is part of a resource, or in a group."""
        prefix = f"{id_.rstrip('/').lower()}/"
        return [resource for key, resource in self.resources.items() if key.startswith(prefix)]


def store(world: World) -> Store:
    """The store of a world."""
    return world.state(Store)
