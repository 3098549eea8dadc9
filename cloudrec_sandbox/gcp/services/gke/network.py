"""What clusters use of networks: subnetworks, secondary ranges, addresses; their firewall rules."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.compute.references import guard
from cloudrec_sandbox.gcp.services.gke.operations import Trouble
from cloudrec_sandbox.gcp.services.gke.state import Gke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.resources.store import Resource
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState

_RESERVED = 2  # addresses that Google reserves at either end of a range
_MOST_PODS = 110
# Rules that GKE sometimes leaves behind a cluster; here it always does.
_FORGOTTEN = ("exkubelet", "inkubelet")


def full(reference: str, collection: str, project: str) -> str:
    """Return the path of a network or a subnetwork ("regions/R/subnetworks"), given by path or name."""
    if "/" not in reference:
        return f"projects/{project}/{collection}/{reference}"
    return store.path_of(reference, project)


def network(world: World, reference: str, project: str) -> Resource:
    """Return the network that a cluster names; GcpError if there is none."""
    path = full(reference or "default", "global/networks", project)
    found = store.find(world, "compute", path)
    if found is None or found.pending:
        name = path.rpartition("/")[2]
        raise GcpError("NOT_FOUND", f'Not found: project "{project}" does not have a network named "{name}".')
    return found


def subnetwork(world: World, reference: str, project: str, region: str) -> Resource:
    """Return the subnetwork of a region that a cluster names; GcpError if there is none."""
    path = full(reference, f"regions/{region}/subnetworks", project)
    found = store.find(world, "compute", path)
    if found is None or found.pending or f"/regions/{region}/" not in path:
        raise GcpError(
            "NOT_FOUND",
            f'Not found: project "{project}" does not have a subnetwork named "{path.rpartition("/")[2]}" in'
            f' region "{region}".',
        )
    return found


def belongs(subnet: Resource, net: Resource) -> bool:
    """Return whether a subnetwork is in a network."""
    return store.path_of(subnet.document.get("network", "")) == net.path


def secondary(subnet: Resource, name: str) -> str:
    """Return the secondary range with a name; GcpError if there is none."""
    for entry in subnet.document.get("secondaryIpRanges", []):
        if entry["rangeName"] == name:
            return str(entry["ipCidrRange"])
    raise GcpError(
        "INVALID_ARGUMENT",
        f'Secondary range "{name}" does not exist in network "{_last(subnet.document["network"])}",'
        f' subnetwork "{subnet.name}".',
    )


def range_trouble(world: World, cluster: ClusterState) -> Trouble | None:
    """Return the trouble of a cluster whose secondary ranges another cluster uses; None if they are free."""
    mine = cluster.message.ip_allocation_policy
    names = {mine.cluster_secondary_range_name, mine.services_secondary_range_name} - {""}
    for other in world.state(Gke).clusters.values():
        if other.path == cluster.path or other.subnetwork != cluster.subnetwork:
            continue
        theirs = other.message.ip_allocation_policy
        used = {theirs.cluster_secondary_range_name, theirs.services_secondary_range_name}
        if taken := sorted(names & used):
            return Trouble(
                "UNKNOWN",
                f'Requested CIDR of range "{taken[0]}" is not available in network'
                f' "{_last(cluster.network)}", subnetwork "{_last(cluster.subnetwork)}": it is used by'
                f" cluster {other.name}.",
                "FAILED_PRECONDITION",
            )
    return None


def pods_fit(world: World, cluster: ClusterState, nodes: int, most_pods: int) -> bool:
    """Return whether the secondary range has addresses for the pods of that many nodes."""
    name = cluster.message.ip_allocation_policy.cluster_secondary_range_name
    subnet = store.find(world, "compute", cluster.subnetwork)
    if subnet is None or not name:
        return True
    size = IPv4Network(secondary(subnet, name)).num_addresses
    # A node gets a block of at least twice its maximum of pods, as a power of two.
    block = 1
    while block < 2 * (most_pods or _MOST_PODS):
        block *= 2
    return nodes * block <= size


def free_addresses(world: World, path: str) -> Iterator[str]:
    """Yield the free addresses of a subnetwork."""
    subnet = store.find(world, "compute", path)
    if subnet is None:
        return
    known = IPv4Network(subnet.document["ipCidrRange"])
    used = {
        interface.get("networkIP")
        for instance in store.within(world, "compute", "projects/", "instances")
        for interface in instance.document.get("networkInterfaces", [])
        if store.path_of(interface.get("subnetwork", "")) == path
    }
    first = int(known.network_address)
    for offset in range(_RESERVED, known.num_addresses - _RESERVED):
        address = str(IPv4Address(first + offset))
        if address not in used:
            yield address


def fits(world: World, path: str, machines: int) -> bool:
    """Return whether a subnetwork has addresses for that many more machines."""
    return sum(1 for _ in islice(free_addresses(world, path), machines)) == machines


@guard("networks")
@guard("subnetworks")
def user(world: World, resource: Resource) -> str:
    """Return the cluster whose control plane uses a network or a subnetwork; '' if none does."""
    for cluster in world.state(Gke).clusters.values():
        if resource.path in (cluster.network, cluster.subnetwork):
            return cluster.path
    return ""


def make_rules(world: World, cluster: ClusterState) -> None:
    """Make the firewall rules of a new cluster."""
    pods = cluster.message.cluster_ipv4_cidr
    subnet = store.need(world, "compute", cluster.subnetwork).document["ipCidrRange"]
    rules: dict[str, tuple[list[str], list[dict[str, Any]], int]] = {
        "all": ([pods], [{"IPProtocol": each} for each in ("ah", "sctp", "tcp", "udp", "icmp", "esp")], 1000),
        "vms": ([subnet], [{"IPProtocol": "tcp", "ports": ["1-65535"]}, {"IPProtocol": "icmp"}], 1000),
        "inkubelet": ([pods], [{"IPProtocol": "tcp", "ports": ["10255"]}], 999),
        "exkubelet": (["0.0.0.0/0"], [{"IPProtocol": "tcp", "ports": ["10255"]}], 1000),
    }
    for suffix, (sources, allowed, priority) in rules.items():
        path = f"projects/{cluster.project}/global/firewalls/{cluster.tag()}-{suffix}"
        action = "denied" if suffix == "exkubelet" else "allowed"
        document = {
            "network": store.link(cluster.network),
            "direction": "INGRESS",
            "priority": priority,
            "sourceRanges": sources,
            "targetTags": [f"{cluster.tag()}-node"],
            action: allowed,
            "disabled": False,
        }
        store.identify(world, document, path, "compute#firewall")
        store.add(world, "compute", "firewalls", path, document)


def remove_rules(world: World, cluster: ClusterState) -> None:
    """Remove most of a cluster's rules."""
    front = f"projects/{cluster.project}/global/firewalls/{cluster.tag()}-"
    for rule in store.within(world, "compute", front, "firewalls"):
        if rule.path.removeprefix(front) not in _FORGOTTEN:
            store.remove(world, "compute", rule.path)


def _last(reference: str) -> str:
    return reference.rpartition("/")[2]
