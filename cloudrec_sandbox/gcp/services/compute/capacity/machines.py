"""The machines that GKE gets from Compute: whether a zone offers them, and whether enough are available now.

`capacity` of /_control: {"a3-highgpu-8g/us-central1-a/spot": 0}, machines still available (`on-demand`,
`spot`, `flex-start`); a key that is not named has no limit, null removes a limit. `capacity_trace` limits
over time how many can run at once (`cloudrec_sandbox.core.capacity.traces`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudrec_sandbox.core.capacity import traces
from cloudrec_sandbox.gcp.api.registry import setting
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.resources.places import ZONES
from cloudrec_sandbox.gcp.services.compute.capacity import quotas
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import ACCELERATORS, MACHINES, Machine, find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.world import World

__all__ = ["Machine", "Shortage", "accelerator_fits", "claim", "find", "release"]

_MARKETS = ("on-demand", "spot", "flex-start")
_PARTS = 3
_LOCAL_SSD_GB = 375
_DISK_METRICS = {"pd-standard": "DISKS_TOTAL_GB", "hyperdisk-balanced": "HDB_TOTAL_GB"}


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Why machines are not available: `kind` is stockout or quota; code and message are Compute's."""

    kind: str
    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The machines of an owner in a zone, all of one type."""

    zone: str
    machine_type: str
    market: str
    count: int
    accelerator: str
    accelerators: int
    local_ssds: int
    disk_type: str
    disk_gb: int
    reservation: str = ""

    @property
    def slot(self) -> str:
        """Return the key of `capacity`."""
        return f"{self.machine_type}/{self.zone}/{self.market}"


@dataclass
class Stock:
    """Machines left, if they are limited, and claims by (owner, zone)."""

    left: dict[str, int] = field(default_factory=dict)
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)


def accelerator_fits(machine_type: str, accelerator_type: str, count: int) -> str:
    """Return the error for accelerators that a machine type cannot have; '' if it can have them."""
    machine, accelerator = MACHINES.get(machine_type), ACCELERATORS.get(accelerator_type)
    if accelerator is None:
        return f"Accelerator type '{accelerator_type}' does not exist."
    if machine is None:
        return f"Machine type with name '{machine_type}' does not exist."
    if machine.accelerator:
        fits = (accelerator_type, count) == (machine.accelerator, machine.accelerators)
        return (
            ""
            if fits
            else (
                f"Machine type '{machine_type}' has {machine.accelerators} accelerator(s) of type"
                f" '{machine.accelerator}' and no others; got {count} of type '{accelerator_type}'."
            )
        )
    if machine.family != "n1" or not accelerator.attachable:
        return f"Accelerator type '{accelerator_type}' cannot be attached to machine type '{machine_type}'."
    return (
        ""
        if count in accelerator.attachable
        else (
            f"The number of guest accelerator cards attached to a VM instance must be one of"
            f" {list(accelerator.attachable)} for '{accelerator_type}'; got {count}."
        )
    )


def claim(
    world: World,
    owner: str,
    *,
    project: str,
    zone: str,
    machine_type: str,
    spot: bool,
    count: int,
    local_ssds: int = 0,
    disk_type: str = "pd-balanced",
    disk_gb: int = 100,
    reservation: str = "",
    flex_start: bool = False,
    accelerator: str = "",
    accelerators: int = 0,
) -> Shortage | None:
    """Set an owner's machines in a zone to `count`: all new ones, or none; return the shortage if none.

    Built-in accelerators and local SSDs need not be named; `accelerator` is what an N1 gets attached, and
    `local_ssds` is for machine types without built-in ones. `reservation` is a name or a path.
    """
    machine = MACHINES[machine_type]
    stock = world.state(Stock)
    before = stock.claims.get((owner, zone))
    wanted = Claim(
        zone=zone,
        machine_type=machine_type,
        market="flex-start" if flex_start else "spot" if spot else "on-demand",
        count=count,
        accelerator=machine.accelerator or accelerator,
        accelerators=machine.accelerators or accelerators,
        local_ssds=machine.local_ssds or local_ssds,
        disk_type=disk_type,
        disk_gb=disk_gb,
        reservation=_path(reservation, project, zone),
    )
    shortage = _shortage(world, project, wanted, before)
    if shortage is None:
        _give_back(stock, before)
        _take(stock, (owner, zone), wanted)
    return shortage


def release(world: World, owner: str) -> None:
    """Release all machines of an owner, in every zone."""
    stock = world.state(Stock)
    for key in [key for key in stock.claims if key[0] == owner]:
        _give_back(stock, stock.claims.pop(key))


def reserved(world: World, reservation: str) -> int:
    """Return how many machines of a reservation, by path, are in use."""
    claims = world.state(Stock).claims.values()
    return sum(each.count for each in claims if each.reservation == reservation)


def _path(reservation: str, project: str, zone: str) -> str:
    if not reservation or reservation.startswith("projects/"):
        return reservation
    return f"projects/{project}/zones/{zone}/reservations/{reservation}"


def _shortage(world: World, project: str, wanted: Claim, before: Claim | None) -> Shortage | None:
    more = wanted.count - (before.count if before else 0)
    if more <= 0:
        return None
    # A reservation has used its quota and its machines since it was made: only its own count matters.
    if wanted.reservation:
        return _not_reserved(world, wanted, more)
    region = ZONES[wanted.zone]
    # Quota is refused before stock, and by the project's limit before the region's.
    for place in (quotas.GLOBAL, region):
        text = quotas.exceeded(world, place, _needs(world, wanted, more, place))
        if text:
            return Shortage(kind="quota", code="QUOTA_EXCEEDED", message=text)
    left, most = world.state(Stock).left.get(wanted.slot), traces.most(world, wanted.slot)
    if most is not None:
        left = min(most - _in_use(world, wanted.slot), more if left is None else left)
    if left is not None and left < more:
        text = (
            f"The zone 'projects/{project}/zones/{wanted.zone}' does not have enough resources available to"
            " fulfill the request.  '(resource type:compute)'."
        )
        return Shortage(kind="stockout", code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", message=text)
    return None


def _in_use(world: World, slot: str) -> int:
    """Return how many machines of a place's stock are claimed."""
    claims = world.state(Stock).claims.values()
    return sum(each.count for each in claims if each.slot == slot and not each.reservation)


def place(_world: World, zone: str, machine_type: str, market: str) -> str:
    """Return the key of `capacity`; ValueError if there is no such place for a trace."""
    key = f"{machine_type}/{zone}/{market}"
    if market not in _MARKETS or find(machine_type, zone) is None:
        raise ValueError(
            f"capacity_trace: {key!r} is not TYPE/ZONE/({'|'.join(_MARKETS)}) of what is offered"
        )
    return key


def _not_reserved(world: World, wanted: Claim, more: int) -> Shortage | None:
    found = store.find(world, "compute", wanted.reservation)
    name = wanted.reservation.rpartition("/")[2]
    if found is None:
        text = f"Specified reservations [{name}] do not exist."
    else:
        holds = found.document["specificReservation"]
        kind = holds["instanceProperties"]["machineType"].rpartition("/")[2]
        free = int(holds["count"]) - reserved(world, wanted.reservation)
        # A reservation of a future one is there from its approval on, and holds machines from its start on.
        if found.document["status"] == "READY" and kind == wanted.machine_type and free >= more:
            return None
        text = f"Specified reservation [{name}] does not have available resources for the request."
    return Shortage(kind="stockout", code="RESERVATION_NOT_AVAILABLE", message=text)


def _needs(world: World, claimed: Claim, count: int, place: str) -> dict[str, float]:
    """Return what a number of machines uses of the quotas of a region, or of the project."""
    machine, gpus = MACHINES[claimed.machine_type], float(claimed.accelerators * count)
    if place == quotas.GLOBAL:
        return {"GPUS_ALL_REGIONS": gpus, "CPUS_ALL_REGIONS": float(machine.vcpus * count)}
    spot = claimed.market == "spot"
    # Without a separate limit for spot CPUs, Compute counts them as ordinary ones.
    own_cpus = spot and quotas.limit(world, place, "PREEMPTIBLE_CPUS") > 0
    needs = {
        "INSTANCES": float(count),
        "PREEMPTIBLE_CPUS" if own_cpus else quotas.CPUS[machine.family]: float(machine.vcpus * count),
        "PREEMPTIBLE_LOCAL_SSD_GB" if spot else "LOCAL_SSD_TOTAL_GB": float(
            claimed.local_ssds * _LOCAL_SSD_GB * count
        ),
        _DISK_METRICS.get(claimed.disk_type, "SSD_TOTAL_GB"): float(claimed.disk_gb * count),
    }
    if claimed.accelerator:
        needs[_gpu_metric(claimed.accelerator, claimed.market)] = gpus
    return needs


def _gpu_metric(accelerator: str, market: str) -> str:
    """Return the metric that counts an accelerator; flex-start counts as spot."""
    if market != "on-demand":
        return quotas.SPOT_GPUS[accelerator]
    # H100 on demand has no metric in a region's quotas, only in Cloud Quotas, by family
    # (google-cloud-compute's model, in which the metric is missing).
    if accelerator in quotas.FAMILIES:
        return f"{quotas.FAMILY}/{quotas.FAMILIES[accelerator]}"
    return quotas.GPUS[accelerator]


@quotas.usage
def used(world: World, place: str) -> Mapping[str, float]:
    """Return what all claims use; a reservation's machines were counted when it was made."""
    total: dict[str, float] = {}
    for each in world.state(Stock).claims.values():
        if not each.reservation and place in (quotas.GLOBAL, ZONES[each.zone]):
            for metric, amount in _needs(world, each, each.count, place).items():
                total[metric] = total.get(metric, 0.0) + amount
    return total


def _take(stock: Stock, key: tuple[str, str], wanted: Claim) -> None:
    stock.claims[key] = wanted
    if wanted.slot in stock.left and not wanted.reservation:
        stock.left[wanted.slot] -= wanted.count


def _give_back(stock: Stock, claimed: Claim | None) -> None:
    if claimed and claimed.slot in stock.left and not claimed.reservation:
        stock.left[claimed.slot] += claimed.count


def _write_capacity(world: World, wishes: Mapping[str, int | None]) -> None:
    for key in wishes:
        parts = key.split("/")
        if len(parts) != _PARTS or parts[2] not in _MARKETS or find(parts[0], parts[1]) is None:
            raise ValueError(f"capacity {key!r} is not TYPE/ZONE/({'|'.join(_MARKETS)}) of what is offered")
    left = world.state(Stock).left
    for key, count in wishes.items():
        if count is None:
            left.pop(key, None)
        else:
            left[key] = int(count)


setting("capacity", read=lambda world: world.state(Stock).left, write=_write_capacity)
