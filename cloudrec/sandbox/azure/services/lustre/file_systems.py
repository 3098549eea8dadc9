"""File systems. Their provisioning and their health are two things: a whole one may still be transitioning.

`lustre_outcome` of /_control: what becomes of file systems made from now on, Available (default) or Failed.
Durations: lustre-create, lustre-health (until it is Available), lustre-delete, lustre-interfaces (what it has
in its subnet outlives it so long).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.kinds import Kind
from cloudrec.sandbox.azure.registry import durations, setting
from cloudrec.sandbox.azure.registry import resource as register
from cloudrec.sandbox.azure.services.compute import quotas
from cloudrec.sandbox.azure.services.compute.sizes import REGIONS
from cloudrec.sandbox.azure.services.lustre import checks
from cloudrec.sandbox.azure.services.lustre.tiers import TIERS, addresses
from cloudrec.sandbox.azure.services.network import interfaces
from cloudrec.sandbox.azure.services.network.references import SUBNET
from cloudrec.sandbox.azure.store import region_of, store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.operations import Operation
    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.world import World

durations(
    {
        "lustre-create": 900,
        "lustre-update": 30,
        "lustre-health": 60,
        "lustre-delete": 300,
        "lustre-interfaces": 30,
    }
)

TYPE = "Microsoft.StorageCache/amlFilesystems"
_MODELS = "azure.mgmt.storagecache.models"
_OUTCOMES = ("Available", "Failed")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_WITHOUT = ("westus",)  # regions that have none
_FIXED = ("storageCapacityTiB", "filesystemSubnet")


@dataclass
class Outcome:
    """What becomes of new file systems."""

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
    tells: ClassVar[Sequence[str]] = ("azure-async",)
    regions: ClassVar[Sequence[str]] = tuple(region for region in REGIONS if region not in _WITHOUT)
    retry_after = 60

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check tier, capacity, zone, subnet, window; and, of what there is, what cannot change."""
        properties = body.get("properties") or {}
        if old is not None:
            _check_fixed(call.path.name, body, old)
        region = region_of(body)
        tier = checks.tier(body, region)
        tib = checks.capacity(tier, properties.get("storageCapacityTiB"))
        checks.zone(body, region)
        window = properties.get("maintenanceWindow") or {}
        if not window.get("dayOfWeek") or not _TIME.fullmatch(str(window.get("timeOfDayUTC") or "")):
            raise ArmError(
                "InvalidParameter",
                "maintenanceWindow needs a dayOfWeek, and a timeOfDayUTC as HH:MM.",
            )
        checks.hsm(call.world, properties)
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
        """Joining the subnet is a permission of its own."""
        if subnet := (body.get("properties") or {}).get("filesystemSubnet"):
            yield f"{SUBNET}/join/action", str(subnet)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Take the addresses; a new one is transitioning."""
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
        """Tell where it can be mounted; it may still be transitioning."""
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

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """It stays, with what it has taken."""
        resource.properties["health"] = _health("Unavailable", "amlfs creation failed")

    def removed(self, world: World, resource: Resource) -> None:
        """What it has in its subnet goes a while later."""
        interfaces.detach(world, resource.id, after=world.duration("lustre-interfaces"))


def recover(world: World, id_: str) -> None:
    """A file system is in good health."""
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
