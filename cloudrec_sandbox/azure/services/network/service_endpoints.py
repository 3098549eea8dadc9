"""Service endpoints of subnets: which there are, and the regions to which those for storage lead.

Sources: "Configure Azure Storage firewalls and virtual networks" (Microsoft.Storage leads to the network's
own region and its paired region, Microsoft.Storage.Global to all regions; the two cannot be on one subnet)
and "Configure virtual network service endpoints" (the locations of an endpoint are the service's choice; a
subnet has one endpoint to a service). The pages have no code of the errors. They do not say whether an
endpoint leads to a region whose pair its own is, where the pair has one direction: here it does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.regions import PAIRS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.store import Resource

_LOCAL, _GLOBAL = "Microsoft.Storage", "Microsoft.Storage.Global"
_SERVICES = (
    _LOCAL,
    _GLOBAL,
    "Microsoft.ContainerRegistry",
    "Microsoft.KeyVault",
    "Microsoft.AzureActiveDirectory",
    "Microsoft.Sql",
    "Microsoft.EventHub",
    "Microsoft.ServiceBus",
    "Microsoft.Web",
    "Microsoft.CognitiveServices",
    "Microsoft.AzureCosmosDB",
)


def check(subnet: str, properties: Mapping[str, Any]) -> None:
    """Refuse endpoints of a subnet that do not exist, or do not go together."""
    services = [endpoint.get("service") for endpoint in properties.get("serviceEndpoints") or []]
    for service in services:
        if service not in _SERVICES:
            raise ArmError(
                "SubnetWithServiceEndpointHasInvalidServiceName",
                f"Subnet {subnet} names the service {service}, which has no service endpoints.",
            )
    # Storage is one service, whichever of its endpoints is meant.
    if len({_LOCAL if service == _GLOBAL else service for service in services}) < len(services):
        raise ArmError(
            "SubnetHasConflictingServiceEndpoints",
            f"Subnet {subnet} has several endpoints to one service: {', '.join(services)}. {_LOCAL} and "
            f"{_GLOBAL} cannot be on one subnet.",
        )


def complete(properties: dict[str, Any], region: str) -> None:
    """Fill in what Azure adds to the endpoints of a subnet in a region."""
    for endpoint in properties.setdefault("serviceEndpoints", []):
        endpoint["provisioningState"] = "Succeeded"
        if endpoint["service"] == _LOCAL:
            endpoint["locations"] = [region, *filter(None, [PAIRS.get(region)])]
        elif endpoint["service"] == _GLOBAL:
            endpoint["locations"] = ["*"]
        else:
            endpoint.setdefault("locations", [region])


def has_storage(subnet: Resource) -> bool:
    """Return whether a subnet has an endpoint to storage anywhere."""
    return bool(_of_storage(subnet))


def reaches_storage(subnet: Resource, region: str) -> bool:
    """Return whether a subnet has an endpoint to storage in a region."""
    return any({region, "*"} & set(row.get("locations") or []) for row in _of_storage(subnet))


def _of_storage(subnet: Resource) -> list[dict[str, Any]]:
    rows = subnet.properties.get("serviceEndpoints") or []
    return [row for row in rows if row.get("service") in (_LOCAL, _GLOBAL)]
