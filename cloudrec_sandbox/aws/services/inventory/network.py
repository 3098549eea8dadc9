"""EC2's resources, for /_control/state: without the default VPC and what is created with every VPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import Entry, inventory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.world import World

_GONE = ("terminated", "deleted", "deleting", "shutting-down", "failed")
_DEFAULT_GROUP = "default"


@inventory
def network(world: World) -> Iterator[Entry]:
    """Yield VPCs and everything in them."""
    for ec2 in world.backends("ec2").values():
        home = {vpc.id for vpc in ec2.vpcs.values() if vpc.is_default}
        foreign = [
            *(("vpc", vpc.id, vpc.id) for vpc in ec2.vpcs.values()),
            *(("subnet", net.id, net.vpc_id) for zone in ec2.subnets.values() for net in zone.values()),
            *(("network-interface", eni.id, eni.subnet.vpc_id) for eni in ec2.enis.values()),
            *(
                ("route-table", table.id, table.vpc_id)
                for table in ec2.route_tables.values()
                if not table.main_association_id
            ),
            *(
                ("security-group", group.id, group.vpc_id)
                for groups in ec2.groups.values()
                for group in groups.values()
                if group.name != _DEFAULT_GROUP
            ),
        ]
        for kind, name, vpc_id in foreign:
            if vpc_id not in home or kind in ("network-interface", "security-group"):
                yield Entry("ec2", kind, name)
        yield from _gateways(ec2)


def _gateways(ec2: Any) -> Iterator[Entry]:  # noqa: ANN401 - moto's EC2 backend
    for igw in ec2.internet_gateways.values():
        yield Entry("ec2", "internet-gateway", igw.id)
    for address in ec2.addresses:
        yield Entry("ec2", "elastic-ip", address.allocation_id)
    for nat in ec2.nat_gateways.values():
        yield Entry("ec2", "nat-gateway", nat.id, nat.state in _GONE)
    for endpoint in ec2.vpc_end_points.values():
        yield Entry("ec2", "vpc-endpoint", endpoint.id, endpoint.state in _GONE)


@inventory
def machines(world: World) -> Iterator[Entry]:
    """Yield instances and what they are made from."""
    for ec2 in world.backends("ec2").values():
        for reservation in ec2.reservations.values():
            for instance in reservation.instances:
                yield Entry("ec2", "instance", instance.id, instance.state in _GONE)
        for volume in ec2.volumes.values():
            yield Entry("ec2", "volume", volume.id)
        for template in ec2.launch_templates.values():
            yield Entry("ec2", "launch-template", template.id)
        for name in ec2.key_pairs:
            yield Entry("ec2", "key-pair", name)
