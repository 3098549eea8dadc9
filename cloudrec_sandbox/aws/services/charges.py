"""What the account's resources cost now, for the bill: by the prices that `price_list` and `prices` serve.

An instance is billed while it is running or stopping to hibernate, so here while it is running (EC2 user
guide, "Instance lifecycle": no charge while pending, shutting down or terminated), at the spot price of the
moment if it is a spot instance. A volume is billed from its creation on. An interface endpoint is billed for
each zone, a public IPv4 address whether it is in use or not (VPC pricing). The unused instances of a capacity
reservation cost as much as used ones; those of a block were paid for when it was bought (user guide,
"Capacity Reservation pricing and billing", "Capacity Blocks pricing and billing").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import charge
from cloudrec_sandbox.aws.services import price_list, prices
from cloudrec_sandbox.aws.services.ec2 import reservations
from cloudrec_sandbox.aws.services.eks.state import Eks
from cloudrec_sandbox.aws.services.fsx.store import Store
from cloudrec_sandbox.core.world import Charge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.world import World

_MONTH_H = 730  # hours that the price of a month is for
_NAT, _ADDRESS, _ENDPOINT = "NatGateway-Hours", "PublicIPv4:InUseAddress", "VpcEndpoint-Hours"
_CONTROL_PLANE, _VOLUME = "AmazonEKS-Hours:perCluster", "EBS:VolumeUsage.gp3"
_BALANCER = "LoadBalancerUsage"
# USD a GiB-month of Lustre on SSD in us-east-1, by MB/s for each TiB; 0 for scratch (FSx for Lustre pricing).
_LUSTRE = {0: 0.14, 125: 0.145, 250: 0.21, 500: 0.34, 1000: 0.60}
_KEY = 1 / _MONTH_H


@charge
def machines(world: World) -> Iterator[Charge]:
    """Yield running instances and all volumes."""
    for region, ec2 in world.backends("ec2").items():
        for reservation in ec2.reservations.values():
            for instance in reservation.instances:
                paid = reservations.is_prepaid(world, region, instance.id)
                if instance.state == "running" and not paid:
                    yield Charge("instance", instance.id, _instance(world, instance, region))
        gib = price_list.service_usd(_VOLUME, region) / _MONTH_H
        for name, kind, count in reservations.idle(world, region):
            yield Charge("capacity-reservation", name, count * prices.on_demand(kind, region))
        for volume in ec2.volumes.values():
            yield Charge("volume", volume.id, gib * volume.size)


def _instance(world: World, instance: Any, region: str) -> float:  # noqa: ANN401 - moto's instance
    kind = instance.instance_type
    if instance.lifecycle == "spot":
        price = prices.spot(world, kind, instance.placement.zone)
        if price is not None:
            return price
    return prices.on_demand(kind, region)


@charge
def network(world: World) -> Iterator[Charge]:
    """Yield gateways, addresses, endpoints and load balancers."""
    for region, ec2 in world.backends("ec2").items():
        for nat in ec2.nat_gateways.values():
            if nat.state == "available":
                yield Charge("nat-gateway", nat.id, price_list.service_usd(_NAT, region))
        for address in ec2.addresses:
            yield Charge("public-address", address.allocation_id, price_list.service_usd(_ADDRESS, region))
        for endpoint in ec2.vpc_end_points.values():
            if endpoint.vpc_endpoint_type == "Interface" and endpoint.state == "available":
                usd = price_list.service_usd(_ENDPOINT, region) * len(endpoint.subnet_ids or ())
                yield Charge("vpc-endpoint", endpoint.id, usd)
    for region, elb in world.backends("elbv2").items():
        for balancer in elb.load_balancers.values():
            yield Charge("load-balancer", balancer.arn, price_list.service_usd(_BALANCER, region))


@charge
def services(world: World) -> Iterator[Charge]:
    """Yield control planes, file systems and keys of the account."""
    for region, eks in world.states(Eks).items():
        for name, cluster in eks.clusters.items():
            if cluster.document["status"] == "ACTIVE":
                usd = price_list.service_usd(_CONTROL_PLANE, region)
                yield Charge("cluster", f"{region}/{name}", usd)
    for store in world.states(Store).values():
        for name, made in store.file_systems.items():
            if made.row["Lifecycle"] == "AVAILABLE":
                yield Charge("file-system", name, _lustre(made.row))
    for kms in world.backends("kms").values():
        for name, key in kms.keys.items():
            if key.key_manager == "CUSTOMER" and key.key_state == "Enabled":
                yield Charge("key", name, _KEY)


def _lustre(row: dict[str, Any]) -> float:
    speed = row["LustreConfiguration"].get("PerUnitStorageThroughput", 0)
    return float(_LUSTRE[speed]) * int(row["StorageCapacity"]) / _MONTH_H
