"""The collections of Compute: where they are, what they show, lists of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.gcp import access, filters, paging, store
from cloudrec.sandbox.gcp.errors import GcpError
from cloudrec.sandbox.gcp.places import REGIONS, ZONES
from cloudrec.sandbox.gcp.registry import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.sandbox.gcp.call import Call
    from cloudrec.sandbox.gcp.store import Resource
    from cloudrec.sandbox.gcp.world import World

    View = Callable[[World, Resource], Mapping[str, Any]]

_PLACES = {"global": "global", "region": "regions/{region}", "zone": "zones/{zone}"}
_views: dict[str, list[View]] = {}
_aggregated: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One collection in one kind of place.

    Attributes:
        name: as in paths: addresses.
        noun: of one of them, as in `compute#address`.
        scope: global, region or zone.
        front: the discovery document's name where it is not `name`: globalAddresses.
        message: what a body of insert must be.
        duration: the name of how long an insert takes.
        quota: the metric that counts them.
        refers: fields of the body that must point to things that are there.
        suffix: what is added to the permission to create or delete one, by its document.
    """

    name: str
    noun: str
    scope: str
    front: str = ""
    message: Any = None
    duration: str = "compute-change"
    quota: str = ""
    refers: tuple[str, ...] = ()
    suffix: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def title(self) -> str:
        """The name in methods and permissions."""
        return self.front or self.name

    @property
    def folder(self) -> str:
        """The template of their paths without the name."""
        return f"projects/{{project}}/{_PLACES[self.scope]}/{self.name}"

    @property
    def url(self) -> str:
        """The template of a URL without the name."""
        return f"/compute/v1/{self.folder}"

    def permission(self, verb: str) -> str:
        """The permission to create or delete one; '' where that depends on which."""
        return "" if self.suffix else f"compute.{self.title}.{verb}"

    def demand(self, call: Call, verb: str, document: Mapping[str, Any]) -> None:
        """GcpError unless the caller may do this with such a one, where that depends on which."""
        if self.suffix:
            access.demand(call, f"compute.{self.title}.{verb}{self.suffix(document)}")

    def path(self, call: Call, name: str | None = None) -> str:
        """The path of the one that a call is about, or of one beside it."""
        return f"{self.folder.format(**call.params)}/{name or call.params['name']}"

    def need(self, call: Call) -> Resource:
        """The one that a call is about; GcpError where there is none."""
        place_exists(call)
        return store.need(call.world, "compute", self.path(call))


def place_exists(call: Call) -> None:
    """Refuse a region or a zone that there is not."""
    for key, known in (("region", REGIONS), ("zone", ZONES)):
        if key in call.params and call.params[key] not in known:
            raise GcpError(
                "INVALID_ARGUMENT", f"Invalid value for field '{key}': '{call.params[key]}'. Unknown {key}."
            )


def view(name: str) -> Callable[[View], View]:
    """Let a function tell fields of a collection's documents that are worked out when they are read."""

    def register(function: View) -> View:
        _views.setdefault(name, []).append(function)
        return function

    return register


def shown(world: World, resource: Resource) -> dict[str, Any]:
    """A thing as it is read."""
    document = dict(resource.document)
    for tell in _views.get(resource.kind, ()):
        document.update(tell(world, resource))
    return document


def reads(collection: Collection, *, aggregated: bool = True) -> None:
    """Register get, list and, where there is one, aggregatedList."""
    title, permission = collection.title, f"compute.{collection.title}"

    @rest("compute", f"{title}.get", "GET", collection.url + "/{name}", permission=f"{permission}.get")
    def get(call: Call) -> dict[str, Any]:
        return shown(call.world, collection.need(call))

    @rest(
        "compute", f"{title}.list", "GET", collection.url, query=paging.QUERY, permission=f"{permission}.list"
    )
    def list_(call: Call) -> dict[str, Any]:
        place_exists(call)
        folder = collection.folder.format(**call.params)
        rows = (shown(call.world, each) for each in store.listed(call.world, "compute", f"{folder}/"))
        return listing(call, collection.noun, list(rows))

    del get, list_
    if aggregated and collection.name not in _aggregated:
        _aggregated.add(collection.name)
        _aggregate(collection)


def listing(call: Call, noun: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A list's answer: what the filter leaves, in pages."""
    found = [row for row in rows if filters.matches(call.query.get("filter", ""), row)]
    items, token = paging.page(found, call)
    path = call.raw.path.removeprefix("/compute/v1/")
    return {
        "kind": f"compute#{noun}List",
        "id": path,
        "selfLink": store.link(path),
        **({"items": items} if items else {}),
        **({"nextPageToken": token} if token else {}),
    }


def aggregate(call: Call, noun: str, name: str, rows: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """An aggregated list's answer, from rows of (scope, document)."""
    found = [row for row in rows if filters.matches(call.query.get("filter", ""), row[1])]
    items, token = paging.page(found, call)
    scopes: dict[str, dict[str, Any]] = {}
    for scope, document in items:
        scopes.setdefault(scope, {}).setdefault(name, []).append(document)
    for scope in (
        "global",
        *(f"regions/{region}" for region in REGIONS),
        *(f"zones/{zone}" for zone in ZONES),
    ):
        empty = {
            "code": "NO_RESULTS_ON_PAGE",
            "message": f"There are no results for scope '{scope}' on this page.",
            "data": [{"key": "scope", "value": scope}],
        }
        scopes.setdefault(scope, {"warning": empty})
    return {
        "kind": f"compute#{noun}AggregatedList",
        "id": f"projects/{call.project}/aggregated/{name}",
        "items": scopes,
        **({"nextPageToken": token} if token else {}),
    }


def _aggregate(collection: Collection) -> None:
    name = collection.name

    @rest(
        "compute",
        f"{name}.aggregatedList",
        "GET",
        f"/compute/v1/projects/{{project}}/aggregated/{name}",
        query=(*paging.QUERY, "includeAllScopes", "serviceProjectNumber"),
        permission=f"compute.{name}.list",
    )
    def aggregated(call: Call) -> dict[str, Any]:
        prefix = f"projects/{call.project}/"
        rows = [
            (each.path.removeprefix(prefix).partition(f"/{name}/")[0], shown(call.world, each))
            for each in store.listed(call.world, "compute", prefix, name, everywhere=True)
        ]
        return aggregate(call, collection.noun, name, rows)

    del aggregated
