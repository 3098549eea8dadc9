"""The tags of EC2's resources, for EC2's own calls and the tagging API."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.api.world import ACCOUNT
from cloudrec_sandbox.aws.services.ec2.filters import matching
from cloudrec_sandbox.aws.services.ec2.placement import Groups
from cloudrec_sandbox.aws.services.ec2.reservations import Reservations
from cloudrec_sandbox.aws.services.tagging import tagged_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World


@tagged_resources
def tagged(world: World, region: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every EC2 resource with its tags."""
    ec2, front = world.backend("ec2", region), f"arn:aws:ec2:{region}:{ACCOUNT}"
    for kind, names in _existing(ec2).items():
        for name in names:
            yield f"{front}:{kind}/{name}", dict(ec2.tags.get(name, {}))
    for row in world.state(Groups, region).rows.values():
        yield row["GroupArn"], _plain(row["Tags"])
    for row in world.state(Reservations, region).rows.values():
        yield row["CapacityReservationArn"], _plain(row["Tags"])


@operation("ec2", "DescribeTags")
def describe(call: Call) -> dict[str, Any]:
    """Return all tags; moto spells some kinds wrong and misses those of the stand-in."""
    rows = []
    for arn, tags in tagged(call.world, call.region):
        kind, _, name = arn.rpartition(":")[2].partition("/")
        rows += [
            {"Key": key, "Value": value, "ResourceId": name, "ResourceType": kind}
            for key, value in tags.items()
        ]
    wanted, plain = [], call.params.get("Filters", [])
    for row in plain:  # the filter `tag:KEY` matches a key with its values
        front, _, key = row["Name"].partition(":")
        if front == "tag" and key:
            wanted += [{"Name": "key", "Values": [key]}, {"Name": "value", "Values": row["Values"]}]
        else:
            wanted.append(row)
    looks: dict[str, Callable[[dict[str, Any]], Any]] = {
        "key": itemgetter("Key"),
        "value": itemgetter("Value"),
        "resource-id": itemgetter("ResourceId"),
        "resource-type": itemgetter("ResourceType"),
    }
    return {"Tags": matching(rows, wanted, looks)}


def _plain(tags: list[dict[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def _existing(ec2: Any) -> dict[str, Iterable[str]]:  # noqa: ANN401 - moto's EC2 backend
    """Return ids by the kind that ARNs name."""
    groups = [group for groups in ec2.groups.values() for group in groups.values()]
    return {
        "customer-gateway": ec2.customer_gateways,
        "dhcp-options": ec2.dhcp_options_sets,
        "elastic-ip": [address.allocation_id for address in ec2.addresses],
        "image": ec2.amis,
        "instance": [
            instance.id for reservation in ec2.reservations.values() for instance in reservation.instances
        ],
        "internet-gateway": ec2.internet_gateways,
        "key-pair": [pair.id for pair in ec2.key_pairs.values()],
        "launch-template": ec2.launch_templates,
        "natgateway": ec2.nat_gateways,
        "network-acl": ec2.network_acls,
        "network-interface": ec2.enis,
        "prefix-list": ec2.managed_prefix_lists,
        "route-table": ec2.route_tables,
        "security-group": [group.id for group in groups],
        "security-group-rule": [
            rule.id for group in groups for rule in (*group.ingress_rules, *group.egress_rules)
        ],
        "snapshot": ec2.snapshots,
        "spot-instances-request": ec2.spot_instance_requests,
        "subnet": [name for zone in ec2.subnets.values() for name in zone],
        "transit-gateway": ec2.transit_gateways,
        "volume": ec2.volumes,
        "vpc": ec2.vpcs,
        "vpc-endpoint": ec2.vpc_end_points,
        "vpc-flow-log": ec2.flow_logs,
        "vpc-peering-connection": ec2.vpc_pcxs,
        "vpn-gateway": ec2.vpn_gateways,
    }
