"""Managed Lustre: a fast file system in the GPUs' zone, and the peering by which a network reaches it.

The file system lives in a network of Google's own. The cluster's network sets a range of addresses aside for
it and is joined to it by a peering, which Google lets nobody end while a file system is there, or was a
moment ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import all_needed, name_of
from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.gcp import apis, ids, labels, network, operations
from cloudrec.providers.gcp.driver import ComputeDriver, GcpDriver
from cloudrec.providers.gcp.layout import TAG_ZONES
from cloudrec.providers.gcp.policies import inherited

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.cloud.prices import Prices
    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

RANGE, PEERING, FILES = "lustre-range", "lustre-peering", "lustre"
GPU_NODES = "gpu-nodes"  # nodes.GPU, which knows nothing of this file
KINDS: Mapping[str, AbstractSet[str]] = {
    RANGE: frozenset({network.NETWORK}),
    PEERING: frozenset({RANGE, network.NETWORK}),
    FILES: frozenset({PEERING, network.NETWORK, GPU_NODES}),
}

_SUFFIX = "lustre"
_SERVICE = "servicenetworking"
_PRODUCER = f"services/{_SERVICE}.googleapis.com"
_NAME = f"{_SERVICE}-googleapis-com"  # of the peering, which Google chooses
_CONNECTION = "/connection"  # behind the network's path: the peering's identity
_FILE_SYSTEM = "data"  # what clients mount
_STATES: Mapping[str, Condition] = {
    "CREATING": Condition.PENDING,
    "DELETING": Condition.DELETING,
    "STOPPED": Condition.FAILED,
    "SUSPENDED": Condition.FAILED,
}


def resources(layout: Layout) -> list[Resource]:
    """Describe the range, the peering and the file system, if the settings ask for them."""
    settings = layout.settings
    if not settings.lustre_gib:
        return []
    joined = {"network": layout.global_path("networks")}
    addresses = layout.resource(
        RANGE,
        needs=(layout.key(network.NETWORK),),
        properties={
            "path": layout.global_path("addresses", _SUFFIX),
            "bits": settings.lustre_cidr_bits,
            **joined,
        },
    )
    peering = layout.resource(
        PEERING,
        needs=(addresses.key, *apis.needs(layout)),
        properties={"range": ids.name(addresses.properties["path"]), **joined},
    )
    # It lives in one zone. Which one is known from the start, or once GPUs were had in one of several.
    after = [layout.key(GPU_NODES)] if len(layout.gpu_zones) > 1 else []
    files = layout.resource(
        FILES,
        needs=(peering.key, *after),
        properties={
            "name": layout.regional(),
            "zone": layout.gpu_zones[0],
            "capacity_gib": settings.lustre_gib,
            "throughput": settings.lustre_throughput,
            "kms_key": settings.kms_key or "",
            **joined,
        },
        hourly_usd=_price(layout.prices, settings.lustre_gib, settings.lustre_throughput),
    )
    return [addresses, peering, files]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {RANGE: RangeDriver(gcp), PEERING: PeeringDriver(gcp), FILES: LustreDriver(gcp)}


def _price(prices: Prices, capacity_gib: int, throughput: int) -> float:
    name = f"lustre-{throughput}-gib"
    return prices.service(name, capacity_gib) if name in prices.services else 0.0


class RangeDriver(ComputeDriver):
    """Handles ranges of addresses that are set aside for Google's services."""

    kind = RANGE
    collection, noun = "global_addresses", "address"
    deadline_s = 1800.0

    def body(self, resource: Resource, identities: Mapping[str, str]) -> dict[str, Any]:
        """Return a range of which Google chooses the addresses, apart from those in use."""
        del identities
        return {
            "purpose": "VPC_PEERING",
            "address_type": "INTERNAL",
            "prefix_length": resource.properties["bits"],
            "network": resource.properties["network"],
        }

    def properties(self, row: Any) -> Mapping[str, Any]:  # noqa: ANN401 - the SDK's message
        """Tell its size and network."""
        return {"bits": row.prefix_length, "network": ids.path(row.network)}

    def state(self, row: Any) -> Condition:  # noqa: ANN401 - the SDK's message
        """It is there once it is reserved."""
        return Condition.PENDING if row.status == "RESERVING" else Condition.READY


class PeeringDriver(GcpDriver):
    """Handles peerings with the network of Google's services. The identity is our network's, and a word."""

    kind = PEERING
    deadline_s = 3600.0  # it cannot be ended until Google has forgotten the file system
    poll_s = 10.0

    @property
    def networks(self) -> network.NetworkDriver:
        """Who knows the networks."""
        return network.NetworkDriver(self.gcp)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Look at the clusters' networks."""
        driver = self.networks
        found = []
        for row in driver.list_rows():
            tags = driver.tags(row)
            if self.is_mine(tags, cluster) and _peered(row):
                found.append(self._observe(ids.path(row.self_link), inherited(tags, PEERING)))
        return found

    def fetch(self, resource: Resource) -> Observed | None:
        """Look at the network."""
        path = resource.properties["network"]
        row = self.gcp.get(self.gcp.compute("networks").get, **ids.arguments(path))
        return self._observe(path, resource.tags) if row is not None and _peered(row) else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look at the network."""
        row = self.networks.row(identity.removesuffix(_CONNECTION))
        return (Condition.READY if _peered(row) else Condition.GONE), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Join the networks; there is no token for it, but a network is joined only once."""
        del token, identities
        path = str(resource.properties["network"])
        body = {"network": self._numbered(path), "reservedPeeringRanges": [resource.properties["range"]]}
        return self.begin(f"{path}{_CONNECTION}", lambda: self._begun(f"{_PRODUCER}/connections", body))

    def remove(self, observed: Observed) -> None:
        """Part the networks; begun again for as long as Google says that the peering is in use."""
        path = observed.identity.removesuffix(_CONNECTION)
        if not _peered(self.networks.row(path)):
            return
        body = {"consumerNetwork": self._numbered(path)}
        name = f"{_PRODUCER}/connections/{_NAME}"
        self.begin(observed.identity, lambda: self._begun(name, body), is_removal=True)

    def _begun(self, name: str, body: Mapping[str, object]) -> str:
        answer = self.gcp.send(_SERVICE, "POST", f"/v1/{name}", body)
        return operations.of_service(_SERVICE, answer["name"])

    def _numbered(self, path: str) -> str:
        """Return the network's path with the project's number, as this service wants it."""
        return f"projects/{self.gcp.number}/global/networks/{ids.name(path)}"

    def _observe(self, path: str, tags: Mapping[str, str]) -> Observed:
        return Observed(
            kind=PEERING,
            name=name_of(tags, ids.name(path)),
            identity=f"{path}{_CONNECTION}",
            condition=Condition.READY,
            tags={name: value for name, value in tags.items() if name != TAG_ZONES},
            location=self.gcp.region,
        )


class LustreDriver(GcpDriver):
    """Handles file systems. They cannot become smaller; a larger one is made in place."""

    kind = FILES
    changeable = frozenset({"capacity_gib"})
    deadline_s = 3600.0
    poll_s = 10.0

    @property
    def lustre(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Managed Lustre's client."""
        return self.gcp.client("lustre")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List all of the project, and keep those with our labels."""
        parent = f"projects/{self.gcp.project}/locations/-"
        rows = self.gcp.rows(self.lustre.list_instances, parent=parent)
        found = [self._observe(row) for row in rows]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read it by its path."""
        row = self.gcp.read(self.lustre.get_instance, name=identity)
        return _STATES.get(row.state.name, Condition.READY), row.state_reason

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the file system where the GPUs are."""
        wanted = resource.properties
        zone = self._zone(resource, identities)
        parent = f"projects/{self.gcp.project}/locations/{zone}"
        document = {
            "filesystem": _FILE_SYSTEM,
            "capacity_gib": wanted["capacity_gib"],
            "per_unit_storage_throughput": wanted["throughput"],
            "network": wanted["network"],
            "labels": labels.encode(resource.tags),
            "kms_key": wanted["kms_key"],
        }
        tokens = iter([token])

        def once() -> str:
            begun = self.gcp.call(
                self.lustre.create_instance,
                parent=parent,
                instance_id=wanted["name"],
                instance=document,
                request_id=next(tokens, ""),
            )
            return operations.of_service("lustre", begun.operation.name)

        return self.begin(f"{parent}/instances/{wanted['name']}", once)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Make it larger."""
        del identities
        document = {"name": observed.identity, "capacity_gib": resource.properties["capacity_gib"]}

        def once() -> str:
            begun = self.gcp.call(
                self.lustre.update_instance, instance=document, update_mask={"paths": ["capacity_gib"]}
            )
            return operations.of_service("lustre", begun.operation.name)

        self.begin(observed.identity, once)

    def remove(self, observed: Observed) -> None:
        """Delete the file system, with what is in it."""

        def once() -> str:
            begun = self.gcp.call(self.lustre.delete_instance, name=observed.identity)
            return operations.of_service("lustre", begun.operation.name)

        self.begin(observed.identity, once, is_removal=True)

    def _zone(self, resource: Resource, identities: Mapping[str, str]) -> str:
        """Return the zone of the GPU nodes, or the only one."""
        for pool in all_needed(resource, identities, GPU_NODES):
            row = self.gcp.read(self.gcp.client("container").get_node_pool, name=pool)
            return str(row.locations[0])
        return str(resource.properties["zone"])

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's message
        tags = labels.decode(dict(row.labels))
        return Observed(
            kind=FILES,
            name=name_of(tags, ids.name(row.name)),
            identity=row.name,
            condition=_STATES.get(row.state.name, Condition.READY),
            properties={
                "capacity_gib": row.capacity_gib,
                "throughput": row.per_unit_storage_throughput,
                "network": ids.path(row.network),
            },
            tags=tags,
            hourly_usd=_price(self.gcp.prices, row.capacity_gib, row.per_unit_storage_throughput),
            reason=row.state_reason,
            location=self.gcp.region,
            created=row.create_time.timestamp() if row.create_time else None,
        )


def _peered(row: Any) -> bool:  # noqa: ANN401 - the SDK's message
    return any(each.name == _NAME for each in row.peerings)
