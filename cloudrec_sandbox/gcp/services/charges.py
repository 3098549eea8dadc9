"""What the project's resources cost now, for the bill: by the prices of the catalogue that `billing` serves.

Compute Engine bills the parts of a machine, and its disks. Cloud NAT costs by the number of machines that use
it, up to 32 of them, and 0.005 USD an hour for each address (cloud.google.com/nat/pricing). GKE costs 0.10
USD an hour for a cluster (cloud.google.com/kubernetes-engine/pricing). A Cloud Scheduler job costs 0.10 USD a
month, after three free ones (cloud.google.com/scheduler/pricing). The steps of workflows are paid by use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.cloud.container_v1.types import Cluster

from cloudrec_sandbox.core.world import Charge
from cloudrec_sandbox.gcp.api.registry import charge
from cloudrec_sandbox.gcp.resources.places import ZONES
from cloudrec_sandbox.gcp.resources.store import Store
from cloudrec_sandbox.gcp.services import billing
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import MACHINES
from cloudrec_sandbox.gcp.services.compute.capacity.machines import Stock
from cloudrec_sandbox.gcp.services.gke.state import Gke

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.services.compute.capacity.machines import Claim

_CONTROL_PLANE = 0.10
_JOB_MONTH, _FREE_JOBS = 0.10, 3
_NAT_OF_MACHINE, _NAT_MOST, _NAT_ADDRESS = 0.0014, 0.044, 0.005
_SSD_GB, _MONTH_H = 375, 730
_SSD = "SSD backed Local Storage"
_DISKS = {
    "pd-standard": "Storage PD Capacity",
    "pd-balanced": "Balanced PD Capacity",
    "pd-ssd": "SSD backed PD Capacity",
}
# The catalogue's names of machine families and GPUs.
_SERIES = {
    "a2": "A2",
    "a3-highgpu": "A3",
    "a3-megagpu": "A3Plus",
    "g2": "G2",
    "e2": "E2",
    "n2": "N2",
    "n2d": "N2D AMD",
}
_GPUS = {
    "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
    "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
    "nvidia-h100-mega-80gb": "Nvidia H100 80GB Plus GPU",
}


@charge
def machines(world: World) -> Iterator[Charge]:
    """Yield the machines of pools, with their disks. Reserved ones cost the same, used or not."""
    for (owner, zone), claim in world.state(Stock).claims.items():
        if claim.count:
            hourly = sum(_parts(world, claim).values()) + _disk(claim)
            yield Charge("machines", f"{owner}/{zone}", claim.count * hourly)


def _parts(world: World, claim: Claim) -> dict[str, float]:
    """Return the parts of one machine, and what they cost an hour."""
    machine, name = MACHINES[claim.machine_type], claim.machine_type
    series = next(of for prefix, of in _SERIES.items() if name.startswith(f"{prefix}-"))
    amounts = {
        f"{series} Instance Core": machine.vcpus,
        f"{series} Instance Ram": machine.memory_gb,
        **({_GPUS[claim.accelerator]: claim.accelerators} if claim.accelerator else {}),
        **({_SSD: claim.local_ssds * _SSD_GB / _MONTH_H} if claim.local_ssds else {}),
    }
    region, is_spot = ZONES[claim.zone], claim.market != "on-demand"
    return {
        part: amount * billing.part_usd(world, part, region, is_spot=is_spot)
        for part, amount in amounts.items()
    }


def _disk(claim: Claim) -> float:
    gib = billing.disk_usd(_DISKS.get(claim.disk_type, "Balanced PD Capacity"), ZONES[claim.zone])
    return gib * claim.disk_gb / _MONTH_H


@charge
def services(world: World) -> Iterator[Charge]:
    """Yield control planes, NAT gateways, and jobs of Cloud Scheduler."""
    for path, cluster in world.state(Gke).clusters.items():
        if cluster.message.status in {Cluster.Status.RUNNING, Cluster.Status.RECONCILING}:
            yield Charge("cluster", path, _CONTROL_PLANE)
    count = sum(claim.count for claim in world.state(Stock).claims.values())
    jobs = [each.path for each in world.state(Store).resources.values() if each.kind == "jobs"]
    for path in jobs[_FREE_JOBS:]:
        yield Charge("scheduler-job", path, _JOB_MONTH / _MONTH_H)
    for resource in world.state(Store).resources.values():
        for nat in resource.document.get("nats", ()) if resource.kind == "routers" else ():
            usd = min(count * _NAT_OF_MACHINE, _NAT_MOST) + _NAT_ADDRESS
            yield Charge("nat", f"{resource.path}/{nat['name']}", usd)
