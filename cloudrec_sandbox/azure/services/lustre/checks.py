"""What Azure Managed Lustre refuses of a new file system, and its checks that clients can call first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.references import SUBNET
from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import route
from cloudrec_sandbox.azure.arm.store import region_of, store
from cloudrec_sandbox.azure.services.authorization import access, principals
from cloudrec_sandbox.azure.services.lustre.tiers import TIERS, Tier, addresses, prefix_length
from cloudrec_sandbox.azure.services.network import interfaces
from cloudrec_sandbox.azure.services.storage.containers import TYPE as CONTAINER
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World


def tier(body: Mapping[str, Any], region: str = "") -> Tier:
    """Return the tier of the SKU that a body names; ArmError for an unknown one."""
    name = str((body.get("sku") or {}).get("name") or "")
    if name.lower() not in TIERS:
        raise ArmError(
            "InvalidParameter",
            f"The SKU '{name}' is not valid{f' in {region}' if region else ''}. Valid are: "
            f"{', '.join(each.name for each in TIERS.values())}.",
        )
    return TIERS[name.lower()]


def capacity(found: Tier, tib: Any) -> float:  # noqa: ANN401 - JSON
    """Return the capacity in TiB; ArmError unless it is a multiple of the tier's step."""
    if (
        not isinstance(tib, int | float)
        or tib < found.step_tib
        or tib % found.step_tib
        or tib > found.most_tib
    ):
        raise ArmError(
            "InvalidParameter",
            f"The storage capacity {tib} TiB is not valid for {found.name}: it must be a multiple of "
            f"{found.step_tib} TiB between {found.step_tib} and {found.most_tib} TiB.",
        )
    return float(tib)


def zone(body: Mapping[str, Any], region: str) -> None:
    """Check that there is one zone, if the region has any."""
    wanted, known = list(body.get("zones") or []), REGIONS.get(region, ())
    if len(wanted) != (1 if known else 0) or set(wanted) - set(known):
        raise ArmError(
            "InvalidParameter",
            f"The zones {wanted} are not valid: a file system in {region} needs exactly "
            f"{f'one of {list(known)}' if known else 'none'}.",
        )


def subnet(world: World, id_: str, region: str, tib: float) -> None:
    """Check that the subnet exists, is in the region, and has room."""
    known = store(world).find(id_)
    network = store(world).find(known.path.parent) if known else None
    if known is None or network is None or known.type != SUBNET or network.location != region:
        raise ArmError("InvalidSubnet", f"The subnet {id_} of the file system was not found in {region}.")
    needed, free = addresses(tib), interfaces.free_addresses(world, id_)
    if free < needed:
        raise ArmError(
            "SubnetNotEnoughFreeIPAddresses",
            f"The subnet {id_} has {free} free addresses; a file system of {tib:g} TiB needs {needed}.",
        )


def hsm(world: World, properties: Mapping[str, Any]) -> None:
    """Check that the containers for data and for logs exist, are two of one account, and can be read."""
    settings = (properties.get("hsm") or {}).get("settings")
    if not settings:
        return
    for member in ("container", "loggingContainer"):
        found = store(world).find(str(settings.get(member)))
        if found is None or found.type != CONTAINER:
            raise _inaccessible(str(settings.get(member)))
    data, logs = str(settings["container"]), str(settings["loggingContainer"])
    # The importer would read its own logs as data.
    if data.lower() == logs.lower():
        raise ArmError("InvalidParameter", "container and loggingContainer of hsm.settings must differ.")
    # azure-mgmt-storagecache, AmlFilesystemHsmSettings: a separate container in the same storage account.
    if _account(data) != _account(logs):
        raise ArmError(
            "InvalidParameter",
            "container and loggingContainer of hsm.settings must be of one storage account.",
        )
    if cannot_read(world, data):
        raise _inaccessible(data)


def cannot_read(world: World, container: str) -> str:
    """Return why the service cannot read a container; empty if it can.

    It makes tokens of the account's keys, so the account must accept these, and the service's principal needs
    Storage Account Contributor and Storage Blob Data Contributor (azure-managed-lustre,
    amlfs-prerequisites.md).
    """
    account = store(world).find(_account(container))
    if account is None or store(world).find(container) is None:
        return f"The container {container} was not found."
    if account.properties.get("allowSharedKeyAccess") is False:
        return f"Key based authentication is not permitted on the storage account {account.name}."
    who, blobs = principals.STORAGE_CACHE, f"{CONTAINER}/blobs/write"
    keys = access.has(world, who, "Microsoft.Storage/storageAccounts/listKeys/action", account.id)
    if not (keys and access.has(world, who, blobs, container, data=True)):
        return f"The resource provider has no access to the storage account {account.name}."
    return ""


def _account(container: str) -> str:
    return container.lower().partition("/blobservices/")[0]


def _inaccessible(container: str) -> ArmError:
    # As a client that was recorded against Azure has it (the effect-azure SDK's StorageCache errors).
    return ArmError("InvalidParameter", f"Storage Container {container} is not found or is inaccessible.")


@route("POST", "Microsoft.StorageCache/checkAmlFSSubnets")
def check_subnets(call: Call) -> Reply:
    """Return whether a subnet can hold a file system."""
    body = call.body
    found = tier(body)
    region = region_of(body)
    capacity(found, body.get("storageCapacityTiB"))
    id_ = str(body.get("filesystemSubnet") or "")
    try:
        subnet(call.world, id_, region, body["storageCapacityTiB"])
    except ArmError as error:
        document = {"status": "Invalid", "message": error.message}
        return json_reply({"filesystemSubnet": document, "error": error.document()}, error.status)
    return Reply(status=200)


@route("POST", "Microsoft.StorageCache/getRequiredAmlFSSubnetsSize")
def required_size(call: Call) -> dict[str, Any]:
    """Return the prefix length of the smallest subnet that can hold a file system."""
    found = tier(call.body)
    capacity(found, call.body.get("storageCapacityTiB"))
    return {"filesystemSubnetSize": prefix_length(call.body["storageCapacityTiB"])}
