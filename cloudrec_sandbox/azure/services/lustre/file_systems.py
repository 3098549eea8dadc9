"""File systems. Provisioning and health are separate: one can be provisioned and still transitioning.

`lustre_outcome` of /_control: the health that file systems made from now on reach, Available (default) or
Failed.
Durations: lustre-create, lustre-health (until it is Available), lustre-delete, lustre-interfaces (how long
its interfaces stay in the subnet after it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.references import SUBNET
from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.registry import durations, setting
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of, store
from cloudrec_sandbox.azure.services.compute import quotas
from cloudrec_sandbox.azure.services.lustre import checks, import_jobs
from cloudrec_sandbox.azure.services.lustre.import_jobs import FILE_SYSTEM as TYPE
from cloudrec_sandbox.azure.services.lustre.tiers import TIERS, addresses
from cloudrec_sandbox.azure.services.network import interfaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations(
    {
        "lustre-create": 900,
        "lustre-update": 30,
        "lustre-health": 60,
        "lustre-delete": 300,
        "lustre-interfaces": 30,
    }
)

_MODELS = "azure.mgmt.storagecache.models"
_OUTCOMES = ("Available", "Failed")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_WITHOUT = ("westus",)  # regions without Azure Managed Lustre
_FIXED = ("storageCapacityTiB", "filesystemSubnet", "hsm")


@dataclass
class Outcome:
    """The health that new file systems reach."""

    health: str = "Available"


def _write_outcome(world: World, health: str) -> None:
    if health not in _OUTCOMES:
        raise ValueError(f"lustre_outcome {health!r}; there are: {', '.join(_OUTCOMES)}")
    world.state(Outcome).health = health


setting("lustre_outcome", read=lambda world: world.state(Outcome).health, write=_write_outcome)


@register
class FileSystems(Kind):
    """File systems."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = ("2026-08-01", "2025-07-01", "2024-07-01")
    model = f"{_MODELS}:AmlFilesystem"
    patch_model = f"{_MODELS}:AmlFilesystemUpdate"
    name_rule = r"[0-9a-zA-Z][-0-9a-zA-Z_]{0,78}[0-9a-zA-Z]"
    create_time, update_time, delete_time = "lustre-create", "lustre-update", "lustre-delete"
    polled_by: ClassVar[Sequence[str]] = ("azure-async",)
    regions: ClassVar[Sequence[str]] = tuple(region for region in REGIONS if region not in _WITHOUT)
    retry_after = 60

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check tier, capacity, zone, subnet, window; of an existing one, what cannot change."""
        properties = body.get("properties") or {}
        if old is not None:
            _check_fixed(call.path.name, body, old)
        region = region_of(body)
        tier = checks.tier(body, region)
        tib = checks.capacity(tier, properties.get("storageCapacityTiB"))
        checks.zone(body, region)
        # azure-mgmt-storagecache's model: the maintenance window is required.
        window = properties.get("maintenanceWindow") or {}
        if not window.get("dayOfWeek") or not _TIME.fullmatch(str(window.get("timeOfDayUTC") or "")):
            raise ArmError(
                "InvalidParameter",
                "maintenanceWindow needs a dayOfWeek, and a timeOfDayUTC as HH:MM.",
            )
        checks.hsm(call.world, properties)
        # The subnet cannot change, and an existing file system already has its addresses.
        if old is None:
            checks.subnet(call.world, str(properties.get("filesystemSubnet")), region, tib)
            limit = quotas.limit(call.world, region, quotas.LUSTRE)
            if sum(each.location == region for each in store(call.world).of_type(TYPE)) >= limit:
                raise ArmError(
                    "QuotaExceeded",
                    f"The limit of {limit} Azure Managed Lustre file systems of the subscription in {region} "
                    "is reached.",
                )

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permission to join the subnet, which is a separate one."""
        if subnet := (body.get("properties") or {}).get("filesystemSubnet"):
            yield f"{SUBNET}/join/action", str(subnet)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Take the addresses; a new file system is transitioning."""
        properties = resource.properties
        tier, tib = TIERS[resource.document["sku"]["name"].lower()], properties["storageCapacityTiB"]
        if old:
            for key in ("health", "clusterUuid", "throughputProvisionedMBps", "clientInfo"):
                properties[key] = old["properties"][key]
            return
        interfaces.attach(call.world, properties["filesystemSubnet"], resource.id, addresses(tib))
        properties |= {
            "health": _health("Transitioning", "amlfs is being created"),
            "clusterUuid": str(uuid5(NAMESPACE_URL, f"{resource.id}@{resource.made_at}")),
            "throughputProvisionedMBps": int(tib * tier.mbps_per_tib),
            "clientInfo": {"lustreVersion": "2.15.5"},
        }

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Show the address of the mount; the file system may still be transitioning."""
        if operation.verb != "create":
            return
        if world.state(Outcome).health == "Failed":
            raise ArmError("AmlfsInternalError", f"The creation of {resource.name} has failed.")
        prefix = interfaces.prefixes(world, resource.properties["filesystemSubnet"])[0]
        address = str(prefix).rpartition(".")[0] + ".4"
        resource.properties["clientInfo"] = {
            "mgsAddress": address,
            "mountCommand": f"mount -t lustre -o noatime,flock {address}@tcp:/lustrefs /azure/lustre",
            "lustreVersion": "2.15.5",
            "containerStorageInterface": {
                "persistentVolumeClaim": "",
                "persistentVolume": "",
                "storageClass": "",
            },
        }
        world.after(world.duration("lustre-health"), recover, resource.id)
        if (resource.properties.get("hsm") or {}).get("settings"):
            # AmlFilesystemHsmSettings: the creation makes an import job, of the prefix "/" by default.
            import_jobs.begin_first(world, resource)

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        # A failed creation leaves the file system there, and its addresses taken, until it is deleted.
        """Keep it, with its addresses."""
        resource.properties["health"] = _health("Unavailable", "amlfs creation failed")

    def removed(self, world: World, resource: Resource) -> None:
        """Release its interfaces in the subnet a while later."""
        interfaces.detach(world, resource.id, after=world.duration("lustre-interfaces"))


def recover(world: World, id_: str) -> None:
    """Set a file system's health to Available."""
    found = store(world).find(id_)
    if found is not None and not found.deleting:
        found.properties["health"] = _health("Available", "amlfs is ok")


def _health(state: str, text: str) -> dict[str, str]:
    return {"state": state, "statusCode": "", "statusDescription": text}


def _check_fixed(name: str, body: dict[str, Any], old: Resource) -> None:
    changed = [key for key in _FIXED if body["properties"].get(key) != old.properties.get(key)]
    changed += [key for key in ("sku", "zones") if body.get(key) != old.document.get(key)]
    if changed:
        raise ArmError(
            "PropertyChangeNotAllowed",
            f"Changing property '{', '.join(changed)}' of the file system {name} is not allowed.",
        )
