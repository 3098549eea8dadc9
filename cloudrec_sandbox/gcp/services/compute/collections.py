"""Compute's collections: their places, their documents, their lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import access
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import filters, paging, store
from cloudrec_sandbox.gcp.resources.places import REGIONS, ZONES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource

    View = Callable[[World, Resource], Mapping[str, Any]]

_PLACES = {"global": "global", "region": "regions/{region}", "zone": "zones/{zone}"}
_views: dict[str, list[View]] = {}
_aggregated: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One collection in one kind of place.

    Attributes:
        name: as in paths: addresses.
        noun: of one resource, as in `compute#address`.
        scope: global, region or zone.
        front: the discovery document's name, if it is not `name`: globalAddresses.
        right: the name in permissions, if it is not the one in methods: disks for regionDisks.
        message: the class of an insert's body.
        duration: the name of an insert's duration.
        quota: the metric that counts the resources.
        refers: fields of the body that must refer to existing resources.
        suffix: what is added to the permission to create or delete a resource, by its document.
    """

    name: str
    noun: str
    scope: str
    front: str = ""
    right: str = ""
    message: Any = None
    duration: str = "compute-change"
    quota: str = ""
    refers: tuple[str, ...] = ()
    suffix: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def title(self) -> str:
        """Return the name in methods."""
        return self.front or self.name

    @property
    def demands(self) -> str:
        """Return the beginning of the permissions."""
        return f"compute.{self.right or self.title}"

    @property
    def folder(self) -> str:
        """Return the template of the paths, without the resource's name."""
        return f"projects/{{project}}/{_PLACES[self.scope]}/{self.name}"

    @property
    def url(self) -> str:
        """Return the template of the URLs, without the resource's name."""
        return f"/compute/v1/{self.folder}"

    def permission(self, verb: str) -> str:
        """Return the permission to create or delete one; '' if it depends on the document."""
        return "" if self.suffix else f"{self.demands}.{verb}"

    def demand(self, call: Call, verb: str, document: Mapping[str, Any]) -> None:
        """Raise GcpError unless the caller may do this, if the permission depends on the document."""
        if self.suffix:
            access.demand(call, f"{self.demands}.{verb}{self.suffix(document)}")

    def path(self, call: Call, name: str | None = None) -> str:
        """Return the path of the call's resource, or of another one in the same place."""
        return f"{self.folder.format(**call.params)}/{name or call.params['name']}"

    def need(self, call: Call) -> Resource:
        """Return the call's resource; GcpError if there is none."""
        place_exists(call)
        return store.need(call.world, "compute", self.path(call))


def place_exists(call: Call) -> None:
    """Refuse an unknown region or zone."""
    for key, known in (("region", REGIONS), ("zone", ZONES)):
        if key in call.params and call.params[key] not in known:
            raise GcpError(
                "INVALID_ARGUMENT", f"Invalid value for field '{key}': '{call.params[key]}'. Unknown {key}."
            )


def view(name: str) -> Callable[[View], View]:
    """Register a function that computes fields of a collection's documents when they are read."""

    def register(function: View) -> View:
        _views.setdefault(name, []).append(function)
        return function

    return register


def shown(world: World, resource: Resource) -> dict[str, Any]:
    """Return a resource as it is read."""
    document = dict(resource.document)
    for fields_of in _views.get(resource.kind, ()):
        document.update(fields_of(world, resource))
    return document


def reads(collection: Collection, *, aggregated: bool = True) -> None:
    """Register get, list and, unless it has none, aggregatedList."""
    title, permission = collection.title, collection.demands

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
    # A collection in two kinds of place (addresses: global and regional) has one aggregated list.
    if aggregated and collection.name not in _aggregated:
        _aggregated.add(collection.name)
        _aggregate(collection)


def listing(call: Call, noun: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a list's answer: the rows that match the filter, in pages."""
    found = [row for row in rows if filters.matches(call.query.get("filter", ""), row)]
    # The filter comes before the pages: a page may not be empty because its rows did not match.
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
    """Return an aggregated list's answer, from rows of (scope, document)."""
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
