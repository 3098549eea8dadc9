"""Managed Lustre: a file system in the zone of the GPUs, and the peering through which nodes reach it.

The file system is in a network that Google manages. The cluster's network reserves a range of addresses for
it, and a peering joins the two networks. Google refuses to end the peering while a file system
exists, and for some time after its deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, Observed, Properties
from cloudrec.errors import PreflightError
from cloudrec.providers.base.driver import all_needed, is_ours, name_of
from cloudrec.providers.gcp.api import apis, ids, labels, operations, sdk
from cloudrec.providers.gcp.api.driver import ComputeDriver, ComputeProperties, GcpDriver
from cloudrec.providers.gcp.api.policies import inherited
from cloudrec.providers.gcp.layout import TAG_ZONES
from cloudrec.providers.gcp.network import firewall, network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from google.api_core.operation import Operation

    from cloudrec.engine.clock import Clock
    from cloudrec.engine.graph import Resource
    from cloudrec.providers.base.prices import Prices
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

RANGE, PEERING, FILES = "lustre-range", "lustre-peering", "lustre"
GPU_NODES = "gpu-nodes"  # nodes.GPU, which this module does not import
KINDS: Mapping[str, AbstractSet[str]] = {
    RANGE: frozenset({network.NETWORK}),
    PEERING: frozenset({RANGE, network.NETWORK}),
    FILES: frozenset({PEERING, network.NETWORK, GPU_NODES}),
}

_SUFFIX = "lustre"
_IMPORT_POLL_S = 10.0
_SERVICE = "servicenetworking"
_PRODUCER = f"services/{_SERVICE}.googleapis.com"
_NAME = f"{_SERVICE}-googleapis-com"  # Google's name of the peering
_CONNECTION = "/connection"  # a peering's identity is the network's path with this suffix
_FILE_SYSTEM = "data"  # the name that clients mount
_STATES: Mapping[str, Condition] = {
    "CREATING": Condition.PENDING,
    "DELETING": Condition.DELETING,
    "STOPPED": Condition.FAILED,
    "SUSPENDED": Condition.FAILED,
}


@dataclass(frozen=True, kw_only=True)
class RangeProperties(ComputeProperties):
    """The requested properties of a range of addresses.

    Attributes:
        bits: length of the block's prefix.
        network: the path of the network that reserves it.
    """

    bits: int
    network: str


@dataclass(frozen=True, kw_only=True)
class PeeringProperties(Properties):
    """The requested properties of a peering.

    Attributes:
        range: the name of the range of addresses for Google's services.
        network: the path of the network.
    """

    range: str
    network: str


@dataclass(frozen=True, kw_only=True)
class LustreProperties(Properties):
    """The requested properties of a file system.

    Attributes:
        name: the last part of its path.
        zone: its zone if the GPU nodes can be in one zone only, else the first of theirs.
        capacity_gib: GiB.
        throughput: MB/s per TiB.
        kms_key: the path of the key that encrypts it; empty for Google's.
        network: the path of the network whose nodes mount it.
    """

    name: str
    zone: str
    capacity_gib: int
    throughput: int
    kms_key: str
    network: str


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the range, the peering and the file system; nothing if the setting lustre_gib is 0."""
    settings = layout.settings
    if not settings.lustre_gib:
        return []
    joined = layout.global_path("networks")
    addresses = layout.resource(
        RANGE,
        needs=(layout.key(network.NETWORK),),
        properties=RangeProperties(
            path=layout.global_path("addresses", _SUFFIX),
            bits=settings.lustre_cidr_bits,
            network=joined,
        ),
        hourly_usd=FREE,
    )
    peering = layout.resource(
        PEERING,
        needs=(addresses.key, *apis.needs(layout)),
        properties=PeeringProperties(range=ids.name(addresses.properties.path), network=joined),
        hourly_usd=FREE,
    )
    rule = firewall.lustre(layout, addresses=addresses.key, path=addresses.properties.path)
    # The file system is in one zone, that of the GPU nodes. With several zones, it is known when they exist.
    after = [layout.key(GPU_NODES)] if len(layout.gpu_zones) > 1 else []
    files = layout.resource(
        FILES,
        needs=(peering.key, rule.key, *after),
        properties=LustreProperties(
            name=layout.regional(),
            zone=layout.gpu_zones[0],
            capacity_gib=settings.lustre_gib,
            throughput=settings.lustre_throughput,
            kms_key=settings.kms_key or "",
            network=joined,
        ),
        hourly_usd=_price(layout.prices, settings.lustre_gib, settings.lustre_throughput),
    )
    return [addresses, peering, rule, files]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {RANGE: RangeDriver(gcp), PEERING: PeeringDriver(gcp), FILES: GcpLustreDriver(gcp)}


def _price(prices: Prices, capacity_gib: int, throughput: int) -> float | None:
    return prices.service(f"lustre-{throughput}-gib", capacity_gib)


class RangeDriver(ComputeDriver["sdk.compute.Address", RangeProperties]):
    """Handles ranges of addresses that are reserved for Google's services."""

    kind = RANGE
    charge = FREE
    noun = "address"
    deadline_s = 1800.0

    @property
    def calls(self) -> sdk.compute.GlobalAddressesClient:
        """The client of global addresses."""
        return self.gcp.rest(sdk.compute.GlobalAddressesClient)

    def body(self, resource: Resource[RangeProperties]) -> sdk.compute.Address:
        """Return the message for a range; Google chooses addresses that are not in use."""
        return sdk.compute.Address(
            purpose="VPC_PEERING",
            address_type="INTERNAL",
            prefix_length=resource.properties.bits,
            network=resource.properties.network,
        )

    def properties(self, row: sdk.compute.Address) -> Mapping[str, object]:
        """Return the size and the network of the range."""
        return {"bits": row.prefix_length, "network": ids.path(row.network)}

    def state(self, row: sdk.compute.Address) -> Condition:
        """Return READY once the range is reserved."""
        return Condition.PENDING if row.status == "RESERVING" else Condition.READY


class PeeringDriver(GcpDriver[PeeringProperties]):
    """Handles peerings with the network of Google's services.

    The identity is the path of the cluster's network, with the suffix `/connection`.
    """

    kind = PEERING
    deadline_s = 3600.0  # Google refuses the deletion until it has released the file system
    poll_s = 10.0

    @property
    def networks(self) -> network.GcpNetworkDriver:
        """The driver of networks."""
        return network.GcpNetworkDriver(self.gcp)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the peerings of the clusters' networks; they have the tags of the network."""
        driver = self.networks
        found = []
        for row in driver.list_rows():
            tags = driver.tags(row)
            if self.is_mine(tags, cluster) and _peered(row):
                found.append(self._observe(ids.path(row.self_link), inherited(tags, PEERING)))
        return found

    def fetch(self, resource: Resource[PeeringProperties]) -> Observed | None:
        """Return the peering if the network has it, else None."""
        path = resource.properties.network
        row = self.gcp.get(self.networks.calls.get, ids.arguments(path))
        return self._observe(path, resource.tags) if row is not None and _peered(row) else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if the network has the peering, else GONE."""
        row = self.networks.row(identity.removesuffix(_CONNECTION))
        return (Condition.READY if _peered(row) else Condition.GONE), ""

    def make(
        self, resource: Resource[PeeringProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the peering. The API has no idempotency token, but a network has this peering only once."""
        del token, identities
        path = resource.properties.network
        body = {"network": self._numbered(path), "reservedPeeringRanges": [resource.properties.range]}
        return self.begin(f"{path}{_CONNECTION}", lambda: self._begun(f"{_PRODUCER}/connections", body))

    def remove(self, observed: Observed) -> None:
        """Start the deletion; it is repeated while Google reports that the peering is in use."""
        path = observed.identity.removesuffix(_CONNECTION)
        if not _peered(self.networks.row(path)):
            return
        body = {"consumerNetwork": self._numbered(path)}
        name = f"{_PRODUCER}/connections/{_NAME}"
        self.begin(observed.identity, lambda: self._begun(name, body), is_removal=True)

    def _begun(self, name: str, body: Mapping[str, object]) -> str:
        answer = self.gcp.send(_SERVICE, "POST", f"/v1/{name}", body)
        return operations.named(_SERVICE, str(answer["name"]))

    def _numbered(self, path: str) -> str:
        """Return the network's path with the project's number, which this service requires."""
        return f"projects/{self.gcp.number}/global/networks/{ids.name(path)}"

    def _observe(self, path: str, tags: Mapping[str, str]) -> Observed:
        return Observed(
            kind=PEERING,
            name=name_of(tags, ids.name(path)),
            identity=f"{path}{_CONNECTION}",
            condition=Condition.READY,
            # The tags are those of the network, which alone has a tag of the zones.
            tags={name: value for name, value in tags.items() if name != TAG_ZONES},
            location=self.gcp.region,
            hourly_usd=FREE,
        )


class GcpLustreDriver(GcpDriver[LustreProperties]):
    """Handles file systems. A file system can grow in place, but not shrink."""

    kind = FILES
    changeable = frozenset({"capacity_gib"})
    deadline_s = 3600.0
    poll_s = 10.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the file systems that have the cluster's labels."""
        found = [self._observe(row) for row in instances(self.gcp)]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Read the file system and return its condition."""
        request = sdk.lustre.GetInstanceRequest(name=identity)
        row = self.gcp.read(self.gcp.lustre.get_instance, request)
        return _STATES.get(row.state.name, Condition.READY), row.state_reason

    def make(self, resource: Resource[LustreProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the file system in the zone of the GPU nodes."""
        wanted = resource.properties
        zone = self._zone(resource, identities)
        parent = f"projects/{self.gcp.project}/locations/{zone}"
        instance = sdk.lustre.Instance(
            filesystem=_FILE_SYSTEM,
            capacity_gib=wanted.capacity_gib,
            per_unit_storage_throughput=wanted.throughput,
            network=wanted.network,
            labels=labels.encode(resource.tags),
            kms_key=wanted.kms_key,
        )
        # A repeated attempt has no token: Google would answer it with the operation that failed.
        tokens = iter([token])

        def once() -> str:
            request = sdk.lustre.CreateInstanceRequest(
                parent=parent, instance_id=wanted.name, instance=instance, request_id=next(tokens, "")
            )
            return self._begun(self.gcp.call(self.gcp.lustre.create_instance, request))

        return self.begin(f"{parent}/instances/{wanted.name}", once)

    def change(
        self, resource: Resource[LustreProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Start the growth of the file system."""
        del identities
        request = sdk.lustre.UpdateInstanceRequest(
            instance=sdk.lustre.Instance(
                name=observed.identity, capacity_gib=resource.properties.capacity_gib
            ),
            update_mask={"paths": ["capacity_gib"]},
        )
        calls = self.gcp.lustre
        self.begin(observed.identity, lambda: self._begun(self.gcp.call(calls.update_instance, request)))

    def remove(self, observed: Observed) -> None:
        """Start the deletion of the file system with all its files."""
        request = sdk.lustre.DeleteInstanceRequest(name=observed.identity)
        calls = self.gcp.lustre
        self.begin(
            observed.identity,
            lambda: self._begun(self.gcp.call(calls.delete_instance, request)),
            is_removal=True,
        )

    @staticmethod
    def _begun(operation: Operation) -> str:
        return operations.of_service("lustre", operation)

    def _zone(self, resource: Resource[LustreProperties], identities: Mapping[str, str]) -> str:
        """Return the zone of the GPU nodes, or the only zone that they can be in."""
        for pool in all_needed(resource, identities, GPU_NODES):
            request = sdk.container.GetNodePoolRequest(name=pool)
            return self.gcp.read(self.gcp.container.get_node_pool, request).locations[0]
        return resource.properties.zone

    def _observe(self, row: sdk.lustre.Instance) -> Observed:
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


def fill(layout: GcpLayout, gcp: Gcp, source: str, clock: Clock) -> None:
    """Import a folder of the bucket to the root of the cluster's file system, and wait for it.

    Google accepts no other destination that does not exist yet (google-cloud-lustre, LustrePath).

    Args:
        layout: the cluster's.
        gcp: the project.
        source: URI of the folder, with a slash at its end.
        clock: the clock for the wait.

    Raises:
        PreflightError: the cluster has no file system.
        OperationFailedError: the import failed.
    """
    found = [row for row in instances(gcp) if is_ours(labels.decode(dict(row.labels)), layout.title)]
    if not found:
        raise PreflightError(
            f"cluster {layout.title!r} has no Lustre file system", remedy="use --data-tier local or bucket"
        )
    request = sdk.lustre.ImportDataRequest(
        name=found[0].name,
        gcs_path=sdk.lustre.GcsPath(uri=source),
        lustre_path=sdk.lustre.LustrePath(path="/"),
    )
    operation = operations.of_service("lustre", gcp.call(gcp.lustre.import_data, request))
    while not (progress := operations.look(gcp, operation)).is_done:
        clock.sleep(_IMPORT_POLL_S)
    if progress.error is not None:
        raise progress.error


def instances(gcp: Gcp) -> list[sdk.lustre.Instance]:
    """List all file systems of the project, in every location."""
    request = sdk.lustre.ListInstancesRequest(parent=f"projects/{gcp.project}/locations/-")
    return gcp.rows(gcp.lustre.list_instances, request)


def _peered(row: sdk.compute.Network) -> bool:
    return any(each.name == _NAME for each in row.peerings)
