"""The collections of a project that the audit lists, and what it reads of each resource.

Every collection is listed, and Cloud Asset Inventory is searched beside them, not instead of them. Its
searchAllResources finds labelled resources of every type in one call, but not what is here by its name or its
network; it needs an API that a new project has not enabled ("Enable the Cloud Asset Inventory API in the
project", cloud.google.com/asset-inventory/docs/search-resources) and another permission; and "not all
resources can be searched" (same page). It is an index: what was deleted a moment ago may still be in it, so
that `down` would name it. The search adds the types that no collection here has.

Not listed: what Google does not bill and the removal of a cluster finds by itself, such as firewall rules and
the proxies of load balancers (`orphans.COLLECTIONS`); service accounts and custom roles, which cost nothing
(the tags of cloudrec's own accounts are in their description, and cloudrec makes no roles).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from google.api_core import exceptions as api

from cloudrec.providers.gcp import errors
from cloudrec.providers.gcp.api import gke, ids, labels
from cloudrec.providers.gcp.api.driver import moment
from cloudrec.providers.gcp.cleanup import charges
from cloudrec.providers.gcp.storage import lustre

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec.providers.gcp.api import sdk
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.cleanup.charges import Charge, Document

_PAGE = 500  # resources; the limit of Compute Engine and of the search
_PLACES = ("locations", "regions", "zones")
# The fields with a link to what a resource is in: a network, or something that is in one itself.
_LINKS = frozenset({"network", "router", "subnetwork", "targetVpnGateway", "vpnGateway"})
_QUERY = "labels.cloudrec-cluster:* OR labels.goog-k8s-cluster-name:cloudrec"
_ASSETS = "cloudasset.googleapis.com"
# Of Cloud Scheduler and of Workflows, which are not in each region.
_NOT_HERE = ("is not a valid location", "is not found or access is unauthorized")
SEARCH = "cloudasset.assets.searchAllResources"

BY_LABEL, BY_DESCRIPTION = "label", "description"
INSTANCE, DISK, BUCKET = "instance", "disk", "bucket"
GROUPS = frozenset({"instance group", "instance group manager"})


@dataclass(frozen=True, kw_only=True)
class Row:
    """One resource.

    Attributes:
        noun: the name of its kind: "disk".
        path: its path; a bucket's name. It is the identity that a driver gives it.
        region: its region; empty if it is global.
        zone: its zone; empty if it has none.
        tags: cloudrec's tags in its labels or in its description.
        labels: its labels.
        description: its description.
        links: the paths of what it is in: networks, subnetworks, routers, gateways.
        users: the paths of the instances that use it.
        hourly_usd: USD an hour; None if unknown.
        created: its creation in seconds since the epoch.
        has_labels: whether resources of its kind can have labels.
        has_driver: whether a driver of cloudrec finds it by its tags.
    """

    noun: str
    path: str
    region: str
    zone: str
    tags: Mapping[str, str]
    labels: Mapping[str, str]
    description: str
    links: frozenset[str]
    users: frozenset[str]
    hourly_usd: float | None
    created: float | None
    has_labels: bool
    has_driver: bool

    @property
    def name(self) -> str:
        """The last part of its path."""
        return ids.name(self.path)


@dataclass(frozen=True, kw_only=True)
class AuditedCollection:
    """One collection of resources.

    Attributes:
        noun: the name of one resource.
        permission: what listing it needs.
        url: the list's path; {project} and {region} are replaced.
        items: the field of the answer that has the resources; in aggregated lists, of each scope.
        charge: returns the price.
        has_labels: whether its resources can have labels.
        driver: where the tags are by which a driver of cloudrec finds its resources; empty without one.
    """

    noun: str
    permission: str
    url: str
    items: str = "items"
    charge: Charge = charges.unknown
    has_labels: bool = True
    driver: str = ""

    @property
    def service(self) -> str:
        """The first word of the service's host."""
        return self.permission.partition(".")[0]


def _compute(name: str, noun: str, charge: Charge, **more: Any) -> AuditedCollection:  # noqa: ANN401 - the fields above
    """Return a collection of Compute Engine that has a list of all zones and regions."""
    return AuditedCollection(
        noun=noun,
        permission=f"compute.{name}.list",
        url=f"/compute/v1/projects/{{project}}/aggregated/{name}",
        items=name,
        charge=charge,
        **more,
    )


def _global(name: str, noun: str, charge: Charge) -> AuditedCollection:
    """Return a collection of Compute Engine that is global."""
    url = f"/compute/v1/projects/{{project}}/global/{name}"
    return AuditedCollection(noun=noun, permission=f"compute.{name}.list", url=url, charge=charge)


COLLECTIONS: tuple[AuditedCollection, ...] = (
    _compute("instances", INSTANCE, charges.instance),
    _compute("disks", DISK, charges.disk),
    _compute("addresses", "address", charges.address, driver=BY_DESCRIPTION),
    _compute("forwardingRules", "forwarding rule", charges.forwarding_rule),
    _compute("instanceGroups", "instance group", charges.free, has_labels=False),
    _compute("instanceGroupManagers", "instance group manager", charges.free, has_labels=False),
    # The labels of a template are those of its instances.
    _compute("instanceTemplates", "instance template", charges.free, has_labels=False),
    _compute("reservations", "reservation", charges.reservation, has_labels=False),
    _compute("resourcePolicies", "resource policy", charges.free, has_labels=False, driver=BY_DESCRIPTION),
    _compute("routers", "router", charges.router, has_labels=False, driver=BY_DESCRIPTION),
    _compute("subnetworks", "subnetwork", charges.free, has_labels=False, driver=BY_DESCRIPTION),
    # A gateway is free, the tunnels through it are not: Google bills Cloud VPN by the tunnel.
    _compute("vpnGateways", "VPN gateway", charges.free),
    _compute("targetVpnGateways", "classic VPN gateway", charges.free),
    _compute("vpnTunnels", "VPN tunnel", charges.unknown),
    _global("snapshots", "snapshot", charges.snapshot),
    _global("images", "image", charges.unknown),
    _global("machineImages", "machine image", charges.unknown),
    AuditedCollection(
        noun=BUCKET,
        permission="storage.buckets.list",
        url="/storage/v1/b?project={project}",
        charge=charges.free,  # by the stored bytes, as the bucket of a cluster
        driver=BY_LABEL,
    ),
    # "To retrieve instance information for all locations, use '-'": ListInstancesRequest of Filestore.
    AuditedCollection(
        noun="Filestore instance",
        permission="file.instances.list",
        url="/v1/projects/{project}/locations/-/instances",
        items="instances",
    ),
    AuditedCollection(
        noun="TPU node",
        permission="tpu.nodes.list",
        url="/v2/projects/{project}/locations/-/nodes",
        items="nodes",
    ),
    AuditedCollection(
        noun="secret",
        permission="secretmanager.secrets.list",
        url="/v1/projects/{project}/secrets",
        items="secrets",
    ),
    AuditedCollection(
        noun="Scheduler job",
        permission="cloudscheduler.jobs.list",
        url="/v1/projects/{project}/locations/{region}/jobs",
        items="jobs",
        has_labels=False,
        driver=BY_DESCRIPTION,
    ),
    AuditedCollection(
        noun="workflow",
        permission="workflows.workflows.list",
        url="/v1/projects/{project}/locations/{region}/workflows",
        items="workflows",
        charge=charges.free,  # by the steps of its executions
        driver=BY_LABEL,
    ),
    AuditedCollection(
        noun="Lustre instance",
        permission="lustre.instances.list",
        url="",  # its client of the SDK lists it
        driver=BY_LABEL,
    ),
)
# Types in Cloud Asset Inventory that the collections above or cloudrec's drivers list.
_TYPES: Mapping[str, str] = {
    "artifactregistry.googleapis.com/Repository": "",
    "compute.googleapis.com/Address": "address",
    "compute.googleapis.com/Disk": "disk",
    "compute.googleapis.com/ForwardingRule": "forwarding rule",
    "compute.googleapis.com/GlobalAddress": "address",
    "compute.googleapis.com/GlobalForwardingRule": "forwarding rule",
    "compute.googleapis.com/Image": "image",
    "compute.googleapis.com/Instance": "instance",
    "compute.googleapis.com/InstanceTemplate": "instance template",
    "compute.googleapis.com/MachineImage": "machine image",
    "compute.googleapis.com/RegionDisk": "disk",
    "compute.googleapis.com/Snapshot": "snapshot",
    "compute.googleapis.com/TargetVpnGateway": "classic VPN gateway",
    "compute.googleapis.com/VpnGateway": "VPN gateway",
    "compute.googleapis.com/VpnTunnel": "VPN tunnel",
    "container.googleapis.com/Cluster": "",
    "container.googleapis.com/NodePool": "",
    "file.googleapis.com/Instance": "Filestore instance",
    "lustre.googleapis.com/Instance": "Lustre instance",
    "secretmanager.googleapis.com/Secret": "secret",
    "secretmanager.googleapis.com/SecretVersion": "secret",
    "storage.googleapis.com/Bucket": "bucket",
    "tpu.googleapis.com/Node": "TPU node",
    "workflows.googleapis.com/Workflow": "workflow",
}
_IN_A_CLUSTER = "k8s.io/"  # in the types of objects of Kubernetes, which end with their cluster


@dataclass(kw_only=True)
class ListedRows:
    """What one list gave.

    Attributes:
        rows: the resources of the region, and the global ones.
        unsearched: why it gave none; empty if it gave all.
        absent: whether the API is not enabled, so that no resource can exist.
    """

    rows: list[Row] = field(default_factory=list)
    unsearched: str = ""
    absent: bool = False


def read(gcp: Gcp, collection: AuditedCollection) -> ListedRows:
    """List one collection; a refusal is reported and hides no other collection."""
    return _tried(gcp, _many(collection.noun), collection.permission, lambda: _rows(gcp, collection))


def search(gcp: Gcp, unread: frozenset[str]) -> ListedRows:
    """Search Cloud Asset Inventory for labelled resources of the types that were not listed.

    Args:
        gcp: the project.
        unread: the nouns of the collections that could not be listed.
    """
    skipped = {name for name, noun in _TYPES.items() if noun not in unread}

    def rows() -> list[Row]:
        url = f"/v1/projects/{gcp.project}:searchAllResources?query={quote(_QUERY)}"
        found = _pages(gcp, "cloudasset", url, "pageSize", lambda answer: answer.get("results", ()))
        return [
            _asset(each)
            for each in found
            if each["assetType"] not in skipped and _IN_A_CLUSTER not in each["assetType"]
        ]

    return _tried(gcp, "types of resources that cloudrec does not list itself", SEARCH, rows)


def not_enabled() -> str:
    """Return the sentence on what is not searched while the API of the search is not enabled."""
    return (
        "gcp: labelled resources of types that cloudrec does not list itself: the project has not enabled"
        f" {_ASSETS}"
    )


def _many(noun: str) -> str:
    if noun.endswith("y"):
        return f"{noun.removesuffix('y')}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def _tried(gcp: Gcp, what: str, permission: str, rows: Callable[[], list[Row]]) -> ListedRows:
    """Return the rows that are in this region or global, or why there are none."""
    try:
        return ListedRows(rows=[row for row in rows() if row.region in {"", gcp.region}])
    except api.Unauthorized:
        raise  # of the credentials, not of the collection
    except api.GoogleAPICallError as error:
        if errors.is_disabled(error):
            return ListedRows(absent=True)
        said = errors.message(error)
        if errors.is_absent(error) or any(words in said for words in _NOT_HERE):
            return ListedRows()
        if isinstance(error, api.Forbidden):
            lacking = errors.permission_of(said) or permission
            return ListedRows(unsearched=f"gcp: {what}: the credentials lack the permission {lacking}")
        return ListedRows(unsearched=f"gcp: {what}: {said}")


def _rows(gcp: Gcp, collection: AuditedCollection) -> list[Row]:
    if not collection.url:
        return [_row(gcp, collection, _file_system(each)) for each in lustre.instances(gcp)]
    url = collection.url.format(project=gcp.project, region=gcp.region)
    size = "maxResults" if collection.service in {"compute", "storage"} else "pageSize"
    documents = _pages(gcp, collection.service, url, size, partial(_items, collection))
    return [_row(gcp, collection, document) for document in documents]


def _file_system(row: sdk.lustre.Instance) -> Document:
    """Return a Lustre instance as the other lists describe theirs."""
    made = row.create_time.isoformat() if row.create_time else ""
    return {"name": row.name, "network": row.network, "labels": dict(row.labels), "createTime": made}


def _items(collection: AuditedCollection, answer: Document) -> Sequence[Document]:
    """Return the resources in an answer, which an aggregated list has by scope."""
    if "/aggregated/" in collection.url:
        scopes = answer.get("items", {}).values()
        return [row for scope in scopes for row in scope.get(collection.items, ())]
    found: Sequence[Document] = answer.get(collection.items, ())
    return found


def _pages(
    gcp: Gcp, service: str, url: str, size: str, items: Callable[[Document], Sequence[Document]]
) -> Iterator[Document]:
    """Yield the resources of all pages of a list."""
    token = ""
    while True:
        query = urlencode({size: _PAGE, **({"pageToken": token} if token else {})})
        page = f"{url}{'&' if '?' in url else '?'}{query}"
        answer = gcp.repeat(partial(gcp.send, service, "GET", page))
        yield from items(answer)
        token = answer.get("nextPageToken", "")
        if not token:
            return


def _row(gcp: Gcp, collection: AuditedCollection, document: Document) -> Row:
    path = ids.path(document.get("selfLink") or document["name"])
    place = _place(path)
    if collection.noun == BUCKET:
        path = document["name"]
        place = document["location"].lower() if document.get("locationType") == "region" else ""
    mine = document.get("labels") or document.get("properties", {}).get("labels") or {}
    said = document.get("description", "")
    tagged = {BY_LABEL: labels.decode(mine), BY_DESCRIPTION: labels.described(said)}
    region = gke.region_of(place)
    return Row(
        noun=collection.noun,
        path=path,
        region=region,
        zone=place if place != region else "",
        tags={**tagged[BY_DESCRIPTION], **tagged[BY_LABEL]},
        labels=mine,
        description=said,
        links=frozenset(_links(document, gcp.project)),
        users=frozenset(ids.path(link) for link in document.get("users", ())),
        hourly_usd=collection.charge(gcp.prices, document),
        created=moment(_time(document)),
        has_labels=collection.has_labels,
        has_driver=bool(tagged.get(collection.driver)),
    )


def _asset(document: Document) -> Row:
    """Return the row of a result of the search, whose name is //SERVICE.googleapis.com/PATH."""
    place = document.get("location", "")
    region = gke.region_of(place) if "-" in place else ""
    mine = document.get("labels", {})
    return Row(
        noun=document["assetType"],
        path=document["name"].removeprefix("//").partition("/")[2],
        region=region,
        zone=place if region and place != region else "",
        tags=labels.decode(mine),
        labels=mine,
        description=document.get("description", ""),
        links=frozenset(),
        users=frozenset(),
        hourly_usd=None,
        created=moment(_time(document)),
        has_labels=True,
        has_driver=False,
    )


def _place(path: str) -> str:
    """Return the region or zone in a path; empty if it has none."""
    words = path.split("/")
    return words[3] if len(words) > 3 and words[2] in _PLACES and words[3] != "global" else ""  # noqa: PLR2004 - projects/P/zones/Z


def _time(document: Document) -> str:
    return str(document.get("creationTimestamp") or document.get("createTime") or "")


def _links(value: object, project: str) -> Iterator[str]:
    """Yield the paths in a document of what the resource is in; a network may have its name only."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _LINKS and isinstance(inner, str):
                yield ids.path(inner) if "/" in inner else f"projects/{project}/global/networks/{inner}"
            else:
                yield from _links(inner, project)
    elif isinstance(value, list):
        for inner in value:
            yield from _links(inner, project)
