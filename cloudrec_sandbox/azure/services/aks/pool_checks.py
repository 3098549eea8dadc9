"""What AKS refuses of a node pool, in a cluster's PUT or its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.regions import REGIONS
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services import providers
from cloudrec_sandbox.azure.services.aks.refusals import invalid, refuse_changes, short_of
from cloudrec_sandbox.azure.services.aks.scale_sets import SPOT
from cloudrec_sandbox.azure.services.compute import machines, sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.world import World

SYSTEM, USER = "System", "User"
_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_TAINT = re.compile(r"[\w./-]+=[\w.-]*:(NoSchedule|PreferNoSchedule|NoExecute)")
_LABEL = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
_RESERVED = "kubernetes.azure.com/"
_SPOT_KEY = f"{_RESERVED}scalesetpriority"
_MOST_NODES, _FEWEST_PODS, _MOST_PODS = 1000, 10, 250
_MOST_DISK_GB = 2048  # Azure's REST API specification, ContainerServiceOSDisk
_UPGRADE = re.compile(r"\d+%?")  # the SDK's text of AgentPoolUpgradeSettings
_LEAST_SYSTEM_VCPUS, _LEAST_SYSTEM_GIB = 2, 4
_IMAGE = "AKSUbuntu-{release}gen2containerd-202611.10.0"
# The release of the OS SKU Ubuntu, by the first Kubernetes version that has it (azure-aks-docs,
# upgrade-os-version.md).
_UBUNTU = {(1, 35): "2404", (1, 25): "2204"}
_MANAGED_GPU = "Microsoft.ContainerService/ManagedGPUExperiencePreview"
# AKS cannot change these on a pool.
FIXED = (
    "vmSize",
    "osDiskSizeGB",
    "osDiskType",
    "kubeletDiskType",
    "maxPods",
    "osType",
    "type",
    "availabilityZones",
    "enableNodePublicIP",
    "scaleSetPriority",
    "scaleSetEvictionPolicy",
    "spotMaxPrice",
    "proximityPlacementGroupID",
    "capacityReservationGroupID",
    "hostGroupID",
    "vnetSubnetID",
    "podSubnetID",
    "enableEncryptionAtHost",
    "enableUltraSSD",
    "gpuInstanceProfile",
    "gpuProfile",
    "kubeletConfig",
    "linuxOSConfig",
)


def check(
    world: World,
    name: str,
    wish: Mapping[str, Any],
    *,
    region: str,
    owner: str,
    old: Mapping[str, Any] | None,
) -> None:
    """Refuse a pool called `name`; `owner` is the id of its scale set, `old` its previous properties."""
    _check_name(name)
    if old is not None:
        refuse_changes(FIXED, lambda member: (old.get(member), wish.get(member)))
    _check_size(name, wish)
    _check_count(name, wish)
    _check_image(name, wish)
    _check_upgrade(name, wish)
    _check_market(name, wish)
    _check_marks(name, wish)
    _check_gpu(world, name, wish)
    _check_place(world, name, wish, region)
    _check_machines(world, wish, region=region, owner=owner)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(
            f"The value of parameter agentPoolProfile.name is invalid. Error details: agent pool name "
            f"'{name}' must "
            "start with a lowercase letter, have max length of 12, and only have characters a-z0-9. Please "
            "see "
            "https://aka.ms/aks-naming-rules for more details."
        )


def _check_size(name: str, wish: Mapping[str, Any]) -> None:
    size = wish.get("vmSize")
    if not size:
        raise invalid(f"Required parameter agentPoolProfile.vmSize is missing (null). (agent pool {name})")
    known = sizes.find(size)
    if known is None:
        raise invalid(
            f"The VM size of {size} is not supported or allowed in your subscription in this location. "
            f"(agent pool "
            f"{name}) For more details on restricted VM sizes, see https://aka.ms/aks/restricted-skus.",
            "VMSizeNotSupported",
        )
    if mode(wish) == SYSTEM and (known.vcpus < _LEAST_SYSTEM_VCPUS or known.memory_gib < _LEAST_SYSTEM_GIB):
        raise invalid(
            f"The VM size {size} of system agent pool {name} has too little: it needs at least "
            f"{_LEAST_SYSTEM_VCPUS} vCPUs and {_LEAST_SYSTEM_GIB} GB of memory.",
            "SystemPoolSkuTooLow",
        )


def mode(wish: Mapping[str, Any]) -> str:
    """Return System or User."""
    return str(wish.get("mode") or USER)


def _check_count(name: str, wish: Mapping[str, Any]) -> None:
    count, least = wish.get("count", 1), 1 if mode(wish) == SYSTEM else 0
    if not least <= count <= _MOST_NODES:
        raise invalid(
            f"The value of parameter agentPoolProfile.count is invalid. Error details: agent pool {name} "
            f"has {count} "
            f"nodes; a {mode(wish)} pool has {least} to {_MOST_NODES}."
        )
    low, high = wish.get("minCount"), wish.get("maxCount")
    if not wish.get("enableAutoScaling"):
        if low is not None or high is not None:
            raise invalid(
                f"agent pool {name}: minCount and maxCount must not be set while enableAutoScaling is false."
            )
    elif low is None or high is None or not least <= low <= count <= high <= _MOST_NODES:
        raise invalid(
            f"agent pool {name}: with enableAutoScaling, minCount {low} <= count {count} <= maxCount "
            f"{high} must hold."
        )
    pods = wish.get("maxPods")
    if pods is not None and not _FEWEST_PODS <= pods <= _MOST_PODS:
        raise invalid(
            f"agent pool {name}: maxPods {pods} is invalid. It must be {_FEWEST_PODS} to {_MOST_PODS}.",
            "InvalidMaxPods",
        )


def _check_image(name: str, wish: Mapping[str, Any]) -> None:
    """Refuse a disk that is too large, and an image of another operating system (the SDK's text of osSKU)."""
    size = wish.get("osDiskSizeGB") or 0
    if not 0 <= size <= _MOST_DISK_GB:
        raise invalid(f"agent pool {name}: osDiskSizeGB {size} is invalid. It must be 0 to {_MOST_DISK_GB}.")
    system, sku = wish.get("osType") or "Linux", wish.get("osSKU")
    if sku and sku.startswith("Windows") != (system == "Windows"):
        raise invalid(f"agent pool {name}: OS SKU {sku} is invalid for OS type {system}.", "InvalidOSSKU")


def _check_upgrade(name: str, wish: Mapping[str, Any]) -> None:
    """Refuse upgrade settings that are no number or share, and those by which no node could be upgraded.

    azure-aks-docs, upgrade-aks-node-pools-rolling.md: maxSurge and maxUnavailable are not both 0.
    """
    settings = wish.get("upgradeSettings") or {}
    found = {key: settings.get(key) for key in ("maxSurge", "maxUnavailable")}
    for key, value in found.items():
        if value is not None and not _UPGRADE.fullmatch(value):
            raise invalid(
                f"agent pool {name}: upgradeSettings.{key} {value!r} is no number and no percentage."
            )
    if found["maxSurge"] in ("0", "0%") and (found["maxUnavailable"] or "0") in ("0", "0%"):
        raise invalid(f"agent pool {name}: maxSurge and maxUnavailable must not both be 0.")


def _check_market(name: str, wish: Mapping[str, Any]) -> None:
    spot = wish.get("scaleSetPriority") == SPOT
    if not spot:
        for member in ("scaleSetEvictionPolicy", "spotMaxPrice"):
            if wish.get(member) is not None:
                raise invalid(f"agent pool {name}: {member} can only be set where scaleSetPriority is Spot.")
        return
    # aks spot-node-pool: never the system pool; label and taint are set by AKS; priority and price are fixed.
    if mode(wish) == SYSTEM:
        raise invalid(
            f"agent pool {name}: a system node pool cannot be a Spot node pool; its mode must be User."
        )
    price = wish.get("spotMaxPrice")
    if price is not None and price != -1 and price <= 0:
        raise invalid(f"agent pool {name}: spotMaxPrice {price} is invalid. It is -1 or greater than zero.")
    if (wish.get("upgradeSettings") or {}).get("maxSurge"):
        raise invalid(f"agent pool {name}: upgrade settings' maxSurge cannot be set on a Spot pool.")


def _check_marks(name: str, wish: Mapping[str, Any]) -> None:
    for key, value in (wish.get("nodeLabels") or {}).items():
        reserved = key.startswith(_RESERVED) and key != _SPOT_KEY
        if reserved or not _LABEL.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(
                f"The value of parameter agentPoolProfile.nodeLabels is invalid. Error details: agent pool "
                f"{name}, "
                f"label {key}={value}: invalid, or of the reserved prefix {_RESERVED}."
            )
    for taint in wish.get("nodeTaints") or []:
        reserved = taint.startswith(_RESERVED) and not taint.startswith(f"{_SPOT_KEY}=")
        if reserved or not _TAINT.fullmatch(taint):
            raise invalid(
                f"The value of parameter agentPoolProfile.nodeTaints is invalid. Error details: agent pool "
                f"{name}, "
                f"taint {taint}: not key=value:effect, or of the reserved prefix {_RESERVED}.",
                "TaintInvalidParameter",
            )


def _check_gpu(world: World, name: str, wish: Mapping[str, Any]) -> None:
    profile, size = wish.get("gpuProfile"), sizes.find(wish["vmSize"])
    if not profile:
        return
    if size is not None and not size.gpus:
        raise invalid(f"agent pool {name}: gpuProfile is for GPU sizes; {size.name} has no GPU.")
    management = (profile.get("nvidia") or {}).get("managementMode")
    # aks-managed-gpu-nodes: a preview, without the cluster autoscaler.
    if management == "Managed":
        if not providers.has_feature(world, _MANAGED_GPU):
            raise invalid(f"Preview feature {_MANAGED_GPU} not registered.", "PreviewFeatureNotRegistered")
        if wish.get("enableAutoScaling"):
            raise invalid(f"agent pool {name}: a managed GPU pool knows no cluster autoscaler.")


def _check_place(world: World, name: str, wish: Mapping[str, Any], region: str) -> None:
    zones, group = wish.get("availabilityZones") or [], wish.get("proximityPlacementGroupID")
    if unknown := sorted(set(zones) - set(REGIONS.get(region, ()))):
        raise invalid(
            f"Preflight validation check for resource(s) failed. The zone(s) '{','.join(unknown)}' for "
            f"resource "
            f"'{name}' is not supported. The supported zones for location '{region}' are "
            f"'{','.join(REGIONS.get(region, ()))}'",
            "AvailabilityZoneNotSupported",
        )
    if group:
        found = store(world).find(group)
        if found is None or found.location != region:
            raise invalid(f"agent pool {name}: there is no proximity placement group {group} in {region}.")
        if len(zones) > 1:
            raise invalid(
                f"agent pool {name}: a proximity placement group can be used with at most one availability "
                f"zone."
            )
    reservation = wish.get("capacityReservationGroupID")
    held = store(world).find(reservation) if reservation else None
    if reservation and held is None:
        raise invalid(f"agent pool {name}: there is no capacity reservation group {reservation}.")
    if held is not None and wish.get("scaleSetPriority") == SPOT:
        raise invalid(f"agent pool {name}: a Spot pool cannot use a capacity reservation group.")
    # A group with zones has reservations in these only, and one without zones regional ones only
    # (azure-mgmt-compute, CapacityReservationGroup.zones).
    if held is not None and not set(zones) <= set(held.document.get("zones") or []):
        raise invalid(
            f"agent pool {name}: capacity reservation group {reservation} is not in zone(s) "
            f"{','.join(zones)}."
        )


def _check_machines(world: World, wish: Mapping[str, Any], *, region: str, owner: str) -> None:
    short = machines.shortage(
        world,
        owner,
        size=wish["vmSize"],
        region=region,
        zones=wish.get("availabilityZones") or [],
        spot=wish.get("scaleSetPriority") == SPOT,
        count=int(wish.get("count", 1)),
    )
    if short is not None:
        raise short_of(short, region)


def completed(wish: dict[str, Any], *, version: str) -> None:
    """Fill in what a pool's profile leaves out; `version` is the cluster's."""
    spot = wish.get("scaleSetPriority") == SPOT
    size = sizes.find(wish["vmSize"])
    defaults: dict[str, Any] = {
        "count": 1,
        "osDiskSizeGB": 128,
        "osDiskType": "Managed",
        "kubeletDiskType": "OS",
        "maxPods": 250,
        "type": "VirtualMachineScaleSets",
        "enableAutoScaling": False,
        "scaleDownMode": "Delete",
        "orchestratorVersion": version,
        "enableNodePublicIP": False,
        "mode": USER,
        "osType": "Linux",
        "osSKU": "Ubuntu",
        "upgradeSettings": {"maxUnavailable": "0"} if spot else {"maxSurge": "10%", "maxUnavailable": "0"},
        "enableEncryptionAtHost": False,
        "enableUltraSSD": False,
        "enableFIPS": False,
        "powerState": {"code": "Running"},
    }
    if spot:
        defaults |= {"scaleSetEvictionPolicy": "Delete", "spotMaxPrice": -1.0}
    if size is not None and size.gpus:
        defaults["gpuProfile"] = {"driver": "Install"}
    for key, value in defaults.items():
        if wish.get(key) is None:
            wish[key] = value
    wish["currentOrchestratorVersion"] = wish["orchestratorVersion"]
    wish["nodeImageVersion"] = _IMAGE.format(release=ubuntu_release(wish))
    if spot:
        wish["nodeLabels"] = {**(wish.get("nodeLabels") or {}), _SPOT_KEY: "spot"}
        taint = f"{_SPOT_KEY}=spot:NoSchedule"
        wish["nodeTaints"] = [*[each for each in wish.get("nodeTaints") or [] if each != taint], taint]


def ubuntu_release(properties: Mapping[str, Any]) -> str:
    """Return the Ubuntu release of a pool's nodes without the point, such as 2404."""
    sku = str(properties.get("osSKU", "Ubuntu")).removeprefix("Ubuntu")
    if sku:
        return sku
    version = tuple(int(part) for part in properties["orchestratorVersion"].split(".")[:2])
    return next(release for first, release in _UBUNTU.items() if version >= first)
