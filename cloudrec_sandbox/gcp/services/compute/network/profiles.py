"""Network profiles: what a network that is made with one may have, and in which zone.

"RDMA network profiles", https://docs.cloud.google.com/vpc/docs/rdma-network-profiles: a profile ZONE-vpc-roce
exists in the zones of the machine types that use it; its networks take MRDMA interfaces in that zone alone,
and Google returns an error for a feature that the profile blocks. "Cloud NGFW for RoCE VPC networks",
https://cloud.google.com/firewall/docs/firewall-for-roce: such a network has no VPC firewall rules, and admits
all traffic by itself. The names of the features are those of google-cloud-compute's
NetworkProfileNetworkFeatures.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging, store
from cloudrec_sandbox.gcp.resources.places import REGIONS, ZONES
from cloudrec_sandbox.gcp.services.compute import collections
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import ACCELERATORS, WITH_RDMA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_NOUN = "networkProfile"
_URL = "/compute/v1/projects/{project}/global/networkProfiles"
_SUFFIX = "-vpc-roce"
_NAMED = re.compile(rf"(?:.*/)?networkProfiles/(?P<zone>[a-z0-9-]+){_SUFFIX}")
# Features of a RoCE network that are blocked, as the end of their names in the SDK -> its enum's value.
_BLOCKED = {
    "AliasIpRanges": "ALIAS_IP_RANGES",
    "AutoModeSubnet": "AUTO_MODE_SUBNET",
    "CloudNat": "CLOUD_NAT",
    "CloudRouter": "CLOUD_ROUTER",
    "DefaultNicAttachment": "DEFAULT_NIC_ATTACHMENT",
    "ExternalIpAccess": "EXTERNAL_IP_ACCESS",
    "Interconnect": "INTERCONNECT",
    "IpForwarding": "IP_FORWARDING",
    "LoadBalancing": "LOAD_BALANCING",
    "MultiNicInSameSubnetwork": "MULTI_NIC_IN_SAME_SUBNETWORK",
    "PacketMirroring": "PACKET_MIRRORING",
    "PrivateGoogleAccess": "PRIVATE_GOOGLE_ACCESS",
    "Psc": "PSC",
    "StaticRoutes": "STATIC_ROUTES",
    "VpcFirewallRules": "VPC_FIREWALL_RULES",
    "VpcPeering": "VPC_PEERING",
    "Vpn": "VPN",
}
_STACKS = ("IPV4_ONLY",)
# The page named this zone in 2025: that of A4X, a machine type which the stand-in does not have.
_OF_A4X = frozenset({"us-central1-a"})


def roce_zone(document: Mapping[str, Any]) -> str:
    """Return the zone of a network whose interfaces do RDMA over Ethernet (RoCE); '' for other networks."""
    found = _NAMED.fullmatch(document.get("networkProfile", ""))
    return found["zone"] if found else ""


def zones() -> frozenset[str]:
    """Return the zones that have a profile: those with a machine type that uses it."""
    return _OF_A4X.union(*(ACCELERATORS[name].zones for name in WITH_RDMA))


def need(document: Mapping[str, Any]) -> None:
    """Raise GcpError for the profile of a new network that does not exist."""
    named = document.get("networkProfile", "")
    if named and roce_zone(document) not in zones():
        raise GcpError("NOT_FOUND", f"The resource '{named}' was not found")


def refuse(world: World, network: str, feature: str, field: str) -> None:
    """Raise GcpError where a network's profile blocks a feature.

    Args:
        world: the state.
        network: the link of the network.
        feature: the feature, such as "VpcFirewallRules".
        field: the field of the request that asks for it.
    """
    found = store.find(world, "compute", store.path_of(network))
    if found is not None and roce_zone(found.document) and feature in _BLOCKED:
        raise _blocked(field, found.document, f"allow{feature}: {_BLOCKED[feature]}_BLOCKED")


def check_subnet(world: World, document: Mapping[str, Any]) -> None:
    """Raise GcpError for a subnet that the profile of its network does not allow."""
    network = store.find(world, "compute", store.path_of(document["network"]))
    zone = roce_zone(network.document) if network is not None else ""
    if network is None or not zone:
        return
    region = document["region"].rpartition("/")[2]
    if zone not in REGIONS[region]:
        raise _blocked("region", network.document, f"the zone {zone} is in region {ZONES[zone]}")
    if document.get("secondaryIpRanges"):
        refuse(world, document["network"], "AliasIpRanges", "secondaryIpRanges")
    if document.get("privateIpGoogleAccess"):
        refuse(world, document["network"], "PrivateGoogleAccess", "privateIpGoogleAccess")
    if document.get("stackType", _STACKS[0]) not in _STACKS:
        raise _blocked("stackType", network.document, f"subnetworkStackTypes: {', '.join(_STACKS)}")


def _blocked(field: str, network: Mapping[str, Any], why: str) -> GcpError:
    profile = network["networkProfile"].rpartition("/")[2]
    return GcpError(
        "INVALID_ARGUMENT",
        f"Invalid value for field 'resource.{field}': the network profile '{profile}' of network"
        f" '{network['name']}' does not allow it ({why}).",
    )


def _document(project: str, zone: str) -> dict[str, Any]:
    path = f"projects/{project}/global/networkProfiles/{zone}{_SUFFIX}"
    return {
        "kind": f"compute#{_NOUN}",
        "name": f"{zone}{_SUFFIX}",
        "selfLink": store.link(path),
        "location": {"name": zone, "scope": "ZONE"},
        "profileType": {"networkType": "RDMA", "rdmaSubtype": "ROCE"},
        "features": {
            **{f"allow{name}": f"{value}_BLOCKED" for name, value in _BLOCKED.items()},
            "allowMultiNicInSameNetwork": "MULTI_NIC_IN_SAME_NETWORK_ALLOWED",
            "interfaceTypes": ["MRDMA"],
            "subnetworkPurposes": ["SUBNETWORK_PURPOSE_PRIVATE"],
            "subnetworkStackTypes": ["SUBNETWORK_STACK_TYPE_IPV4_ONLY"],
            "addressPurposes": ["GCE_ENDPOINT"],
        },
    }


@rest("compute", "networkProfiles.get", "GET", _URL + "/{name}", permission="compute.networkProfiles.get")
def get(call: Call) -> dict[str, Any]:
    """Return one profile."""
    name = call.params["name"]
    zone = name.removesuffix(_SUFFIX)
    if not name.endswith(_SUFFIX) or zone not in zones():
        path = f"projects/{call.project}/global/networkProfiles/{name}"
        raise GcpError("NOT_FOUND", f"The resource '{path}' was not found")
    return _document(call.project, zone)


@rest(
    "compute",
    "networkProfiles.list",
    "GET",
    _URL,
    query=paging.QUERY,
    permission="compute.networkProfiles.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the profiles of all zones."""
    return collections.listing(call, _NOUN, [_document(call.project, zone) for zone in sorted(zones())])
