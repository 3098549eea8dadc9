"""Network security groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import GROUP, SUBNET, referring
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.services.network.base import MODELS, NetworkKind, guid

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

# azure-mgmt-network's model: priorities are between 100 and 4096; the groups' default rules are above.
_PRIORITIES = range(100, 4097)
# Rules that every group has: name, priority, source, destination, access, direction.
_DEFAULTS = (
    ("AllowVnetInBound", 65000, "VirtualNetwork", "VirtualNetwork", "Allow", "Inbound"),
    ("AllowAzureLoadBalancerInBound", 65001, "AzureLoadBalancer", "*", "Allow", "Inbound"),
    ("DenyAllInBound", 65500, "*", "*", "Deny", "Inbound"),
    ("AllowVnetOutBound", 65000, "VirtualNetwork", "VirtualNetwork", "Allow", "Outbound"),
    ("AllowInternetOutBound", 65001, "*", "Internet", "Allow", "Outbound"),
    ("DenyAllOutBound", 65500, "*", "*", "Deny", "Outbound"),
)


@register
class SecurityGroups(NetworkKind):
    """Groups of rules for subnets."""

    type = GROUP
    model = f"{MODELS}:NetworkSecurityGroup"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check that every rule has a name, and a priority that no other rule of its direction has."""
        taken: dict[tuple[str, int], str] = {}
        for rule in (body.get("properties") or {}).get("securityRules") or []:
            name, properties = str(rule.get("name") or ""), rule.get("properties") or {}
            priority = int(properties.get("priority") or 0)
            if not name:
                raise ArmError(
                    "InvalidRequestFormat", "Cannot parse the request: a security rule has no name."
                )
            if priority not in _PRIORITIES:
                raise ArmError(
                    "SecurityRuleInvalidPriority",
                    f"Security rule has invalid Priority. Value provided: {priority}. Allowed range "
                    f"{_PRIORITIES[0]}-{_PRIORITIES[-1]}. ({name})",
                )
            _check_ends(name, properties)
            key = (str(properties.get("direction")), priority)
            if key in taken:
                raise ArmError(
                    "SecurityRuleConflict",
                    f"Security rule {name} conflicts with rule {taken[key]}. Rules cannot have the same "
                    "Priority and Direction.",
                )
            taken[key] = name

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Add the rules that every group has."""
        properties = resource.properties
        properties["resourceGuid"] = guid(resource)
        for rule in properties.setdefault("securityRules", []):
            rule["id"] = f"{resource.id}/securityRules/{rule['name']}"
            rule["properties"]["provisioningState"] = "Succeeded"
        properties["defaultSecurityRules"] = [
            {
                "id": f"{resource.id}/defaultSecurityRules/{name}",
                "name": name,
                "properties": {
                    "provisioningState": "Succeeded",
                    "protocol": "*",
                    "sourcePortRange": "*",
                    "destinationPortRange": "*",
                    "sourceAddressPrefix": source,
                    "destinationAddressPrefix": destination,
                    "access": access,
                    "priority": priority,
                    "direction": direction,
                },
            }
            for name, priority, source, destination, access, direction in _DEFAULTS
        ]

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while a subnet refers to it."""
        users = [user.id for user in referring(world, resource.id, SUBNET, "networkSecurityGroup")]
        if users:
            raise ArmError(
                "InUseNetworkSecurityGroupCannotBeDeleted",
                f"Network security group {resource.id} cannot be deleted because it is in use by the "
                f"following resources: {', '.join(users)}. In order to delete the Network security group, "
                "remove the association with the resource(s). To learn how to do this, see aka.ms/deletensg.",
            )

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the subnets that refer to it."""
        shown = super().show(world, resource)
        users = [{"id": user.id} for user in referring(world, resource.id, SUBNET, "networkSecurityGroup")]
        return shown | {"properties": {**resource.properties, **({"subnets": users} if users else {})}}


def _check_ends(name: str, properties: dict[str, Any]) -> None:
    """Check that a rule names each of its ends once: as one value, or as several."""
    for one, many in (
        ("sourcePortRange", "sourcePortRanges"),
        ("destinationPortRange", "destinationPortRanges"),
        ("sourceAddressPrefix", "sourceAddressPrefixes"),
        ("destinationAddressPrefix", "destinationAddressPrefixes"),
    ):
        if bool(properties.get(one)) == bool(properties.get(many)):
            raise ArmError(
                "SecurityRuleParameterInvalid",
                f"Security rule {name} must have exactly one of {one} and {many}.",
            )
