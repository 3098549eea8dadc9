"""Storage accounts, whose names must be unique in all of Azure.

Source of the rules for subnets: "Configure Azure Storage firewalls and virtual networks". A rule for a subnet
whose endpoint does not reach the account's region is refused by it, with a message that no page has.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.references import SUBNET
from cloudrec_sandbox.azure.arm.registry import durations, route
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of, store
from cloudrec_sandbox.azure.services import names
from cloudrec_sandbox.azure.services.compute import quotas
from cloudrec_sandbox.azure.services.network import service_endpoints
from cloudrec_sandbox.azure.services.storage import blob_service
from cloudrec_sandbox.azure.services.storage.blob_service import ACCOUNT as TYPE
from cloudrec_sandbox.azure.services.storage.blob_service import APIS, MODELS
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"storage-create": 20})

_NAME = re.compile(r"[a-z0-9]{3,24}")
_FIXED = ("isHnsEnabled", "isNfsV3Enabled", "dnsEndpointType")
_PRIVATE = [IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
_NARROWEST = 30  # prefix length; Azure takes smaller ranges as single addresses only


def _bad_name(name: str) -> str:
    return (
        f"{name} is not a valid storage account name. Storage account name must be between 3 and 24 "
        "characters in length and use numbers and lower-case letters only."
    )


def _taken(name: str) -> str:
    return f"The storage account named {name} is already taken."


@register
class StorageAccounts(Kind):
    """Accounts. PUT answers 202 without a body; the operation's end returns the account."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = APIS
    model = f"{MODELS}:StorageAccountCreateParameters"
    patch_model = f"{MODELS}:StorageAccountUpdateParameters"
    name_rule = r".*"  # the service itself refuses a name, with its own error
    create_time = "storage-create"
    create_status = HTTPStatus.ACCEPTED
    polled_by: ClassVar[Sequence[str]] = ("location",)
    retry_after = 17

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the name, what cannot change, and the network rules."""
        name, properties = call.path.name, body.get("properties") or {}
        if not _NAME.fullmatch(name):
            raise ArmError("AccountNameInvalid", _bad_name(name))
        if old is None:
            _check_new(call, region_of(body))
        else:
            _check_fixed(body, old.document)
        if (body.get("sku") or {}).get("name", "").startswith("Premium") and body.get("kind") == "StorageV2":
            raise ArmError(
                "InvalidAccountTypeForKind",
                "The account type of kind StorageV2 must be one of the Standard ones.",
            )
        region = old.location if old else region_of(body)
        _check_rules(call.world, name, properties.get("networkAcls") or {}, region)

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permission on a subnet that is let in."""
        for rule in _subnet_rules((body.get("properties") or {}).get("networkAcls") or {}):
            yield f"{SUBNET}/joinViaServiceEndpoint/action", rule

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults; a PUT that omits a property leaves it as it was."""
        before = old["properties"] if old else {}
        for key, value in before.items():
            resource.properties.setdefault(key, value)
        name, properties = resource.name, resource.properties
        properties |= {
            "creationTime": before.get("creationTime", as_datetime(call.world.now()).isoformat()),
            "primaryLocation": resource.location,
            "statusOfPrimary": "available",
            "primaryEndpoints": {
                service: f"https://{name}.{service}.core.windows.net/"
                for service in ("blob", "dfs", "file", "queue", "table", "web")
            },
        }
        properties.setdefault("supportsHttpsTrafficOnly", True)
        properties.setdefault("allowBlobPublicAccess", False)
        properties.setdefault("minimumTlsVersion", "TLS1_2")
        properties.setdefault("isHnsEnabled", False)
        properties.setdefault("accessTier", "Hot")
        acls = properties.setdefault("networkAcls", {"defaultAction": "Allow"})
        acls.setdefault("bypass", "AzureServices")
        acls.setdefault("ipRules", [])
        for rule in acls.setdefault("virtualNetworkRules", []):
            rule["action"] = "Allow"
        sku = resource.document["sku"]
        resource.document["sku"] = {"name": sku["name"], "tier": sku["name"].partition("_")[0]}
        blob_service.make(call.world, resource)

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the states of the subnets that it lets in."""
        shown = super().show(world, resource)
        acls = resource.properties["networkAcls"]
        rules = [
            {**rule, "state": "Succeeded" if store(world).find(rule["id"]) else "NetworkSourceDeleted"}
            for rule in acls["virtualNetworkRules"]
        ]
        shown["properties"] = {**resource.properties, "networkAcls": {**acls, "virtualNetworkRules": rules}}
        return shown

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the type's own error code."""
        return ArmError(
            "StorageAccountOperationInProgress",
            "An operation is currently performing on this storage account that requires exclusive access.",
            status=HTTPStatus.CONFLICT,
        )


def _check_new(call: Call, region: str) -> None:
    name = call.path.name
    if names.is_foreign(call.world, names.STORAGE, name):
        # Names of accounts are host names, so unique in all of Azure.
        raise ArmError("StorageAccountAlreadyTaken", _taken(name), status=HTTPStatus.CONFLICT)
    accounts = list(store(call.world).of_type(TYPE))
    if any(each.name.lower() == name.lower() for each in accounts):
        raise ArmError(
            "StorageAccountInAnotherResourceGroup",
            f"The account {name} is already in another resource group in this subscription.",
            status=HTTPStatus.CONFLICT,
        )
    limit = quotas.limit(call.world, region, quotas.STORAGE_ACCOUNTS)
    used = sum(each.location == region for each in accounts)
    if used >= limit:
        raise ArmError(
            "SubscriptionAlreadyHasMaximumNumberOfStorageAccounts",
            f"Subscription {call.path.subscription} already contains {used} storage accounts in location "
            f"{region} and the maximum allowed is {limit}.",
        )


def _check_fixed(body: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    if body.get("kind", old["kind"]) != old["kind"]:
        raise ArmError(
            "AccountPropertyCannotBeUpdated",
            "The property 'kind' was specified in the input, but it cannot be updated.",
            status=HTTPStatus.CONFLICT,
        )
    for name in _FIXED:
        if (body.get("properties") or {}).get(name, old["properties"].get(name)) != old["properties"].get(
            name
        ):
            raise ArmError(
                "AccountPropertyCannotBeUpdated",
                f"The property '{name}' was specified in the input, but it cannot be updated as it is "
                "read-only. For more information, see - https://aka.ms/storageaccountupdate",
                status=HTTPStatus.CONFLICT,
            )


def _check_rules(world: World, name: str, acls: Mapping[str, Any], region: str) -> None:
    """Check that subnets exist with a service endpoint to the account's region; that addresses are public."""
    for rule in _subnet_rules(acls):
        subnet = store(world).find(rule)
        if subnet is None or subnet.type != SUBNET:
            raise ArmError(
                "NetworkAclsValidationFailure",
                f"Validation of network acls failure: SubnetsNotFound: {rule}. (storage account {name})",
            )
        state = subnet.properties.get("provisioningState")
        if state != "Succeeded":
            raise ArmError(
                "NetworkAclsValidationFailure",
                "Validation of network acls failure: SubnetsNotProvisioned:Cannot proceed with operation "
                f"because subnets {subnet.name} of the virtual network {subnet.path.parent} are not "
                f"provisioned. They are in {state} state..",
            )
        _check_endpoint(subnet, region)
    for row in acls.get("ipRules") or []:
        # Azure's rules are for addresses of the internet; private ones come by a subnet's rule.
        if not _is_public_range(str(row.get("value"))):
            raise ArmError(
                "InvalidValuesForRequestParameters",
                "Values for request parameters are invalid: networkAcls.ipRule[*].value. "
                "For more information, see - https://aka.ms/storagenetworkruleset",
            )


def _check_endpoint(subnet: Resource, region: str) -> None:
    """Refuse a subnet by whose service endpoints storage in a region does not see its machines' addresses."""
    network = subnet.path.parent
    if not service_endpoints.has_storage(subnet):
        raise ArmError(
            "NetworkAclsValidationFailure",
            "Validation of network acls failure: SubnetsHaveNoServiceEndpointsConfigured:Subnets "
            f"{subnet.name} of virtual network {network} do not have ServiceEndpoints for Microsoft.Storage "
            "resources configured. Add Microsoft.Storage to subnet's ServiceEndpoints collection before "
            "trying to ACL Microsoft.Storage resources to these subnets..",
        )
    if not service_endpoints.reaches_storage(subnet, region):
        raise ArmError(
            "NetworkAclsValidationFailure",
            f"Validation of network acls failure: subnet {subnet.name} of virtual network {network} has the "
            f"service endpoint Microsoft.Storage, which does not reach region {region}. An account in "
            "another region needs Microsoft.Storage.Global.",
        )


def _subnet_rules(acls: Mapping[str, Any]) -> Iterable[str]:
    return (str(row.get("id")) for row in acls.get("virtualNetworkRules") or [])


def _is_public_range(text: str) -> bool:
    try:
        block = IPv4Network(text)
    except ValueError:
        return False
    is_private = any(block.overlaps(each) for each in _PRIVATE)
    return not is_private and ("/" not in text or block.prefixlen <= _NARROWEST)


@route("POST", "Microsoft.Storage/checkNameAvailability")
def check_name(call: Call) -> dict[str, Any]:
    """Return whether a name is available."""
    name = str(call.body.get("name") or "")
    if not _NAME.fullmatch(name):
        return {"nameAvailable": False, "reason": "AccountNameInvalid", "message": _bad_name(name)}
    there = any(each.name == name for each in store(call.world).of_type(TYPE))
    if there or names.is_foreign(call.world, names.STORAGE, name):
        return {"nameAvailable": False, "reason": "AlreadyExists", "message": _taken(name)}
    return {"nameAvailable": True}
