"""Eventual consistency: a new resource cannot be seen yet, and a deleted one is still seen.

`lag_s` of /_control, in virtual seconds, all 0 at the start:

    ids     an EC2 call that names a younger id is refused with Invalid*.NotFound
    lists   EC2's Describe calls without ids leave out what is younger, and show what was deleted since
    tags    the tagging API's GetResources answers from an index that is so old
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.protocol import parse
from cloudrec_sandbox.aws.api.registry import operation, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

_FIRST_FAILURE = 300
_READS = ("Describe", "List", "Get", "Head")
_PAGE = 100


@dataclass(frozen=True)
class Kind:
    """How EC2 reports one kind of resource."""

    prefix: str
    missing: str
    describe: str
    items: str
    id: str
    delete: str

    @property
    def ids(self) -> str:
        """Return the name of the parameter that takes ids."""
        return f"{self.id}s"


_KINDS = (
    Kind("vpc-", "InvalidVpcID.NotFound", "DescribeVpcs", "Vpcs", "VpcId", "DeleteVpc"),
    Kind("subnet-", "InvalidSubnetID.NotFound", "DescribeSubnets", "Subnets", "SubnetId", "DeleteSubnet"),
    Kind(
        "igw-",
        "InvalidInternetGatewayID.NotFound",
        "DescribeInternetGateways",
        "InternetGateways",
        "InternetGatewayId",
        "DeleteInternetGateway",
    ),
    Kind(
        "nat-", "NatGatewayNotFound", "DescribeNatGateways", "NatGateways", "NatGatewayId", "DeleteNatGateway"
    ),
    Kind(
        "eipalloc-",
        "InvalidAllocationID.NotFound",
        "DescribeAddresses",
        "Addresses",
        "AllocationId",
        "ReleaseAddress",
    ),
    Kind(
        "rtb-",
        "InvalidRouteTableID.NotFound",
        "DescribeRouteTables",
        "RouteTables",
        "RouteTableId",
        "DeleteRouteTable",
    ),
    Kind(
        "sg-",
        "InvalidGroup.NotFound",
        "DescribeSecurityGroups",
        "SecurityGroups",
        "GroupId",
        "DeleteSecurityGroup",
    ),
    Kind(
        "eni-",
        "InvalidNetworkInterfaceID.NotFound",
        "DescribeNetworkInterfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "DeleteNetworkInterface",
    ),
    Kind(
        "vpce-",
        "InvalidVpcEndpointId.NotFound",
        "DescribeVpcEndpoints",
        "VpcEndpoints",
        "VpcEndpointId",
        "DeleteVpcEndpoints",
    ),
    Kind(
        "lt-",
        "InvalidLaunchTemplateId.NotFound",
        "DescribeLaunchTemplates",
        "LaunchTemplates",
        "LaunchTemplateId",
        "DeleteLaunchTemplate",
    ),
    Kind("vol-", "InvalidVolume.NotFound", "DescribeVolumes", "Volumes", "VolumeId", "DeleteVolume"),
)
_BY_DESCRIBE = {kind.describe: kind for kind in _KINDS}
_BY_DELETE = {kind.delete: kind for kind in _KINDS}
_ID = re.compile(r"^(?:{})[0-9a-f]+$".format("|".join(kind.prefix for kind in _KINDS)))


@dataclass
class Lag:
    """The lags in force, and what they need to remember."""

    seconds: dict[str, float] = field(default_factory=lambda: {"ids": 0.0, "lists": 0.0, "tags": 0.0})
    births: dict[str, float] = field(default_factory=dict)
    # By id: when it was deleted, and its last document.
    deaths: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    # The tagging API's index at each change, oldest first.
    index: list[tuple[float, list[dict[str, Any]]]] = field(default_factory=list)


def _ids_in(value: Any) -> Iterator[str]:  # noqa: ANN401 - parameters and replies
    if isinstance(value, str) and _ID.match(value):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _ids_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _ids_in(item)


@operation("ec2", "*", order=-90)
def watch_ec2(call: Call) -> Reply | dict[str, Any]:
    """Refuse ids that are too young, and record when resources are created and deleted."""
    lag = call.world.state(Lag)
    if not any(lag.seconds.values()):
        # Only calls that may change something need a new entry.
        return call.pass_on()
    now = call.world.now()
    for name in _ids_in(call.params):
        if now - lag.births.get(name, 0.0) < lag.seconds["ids"]:
            kind = next(kind for kind in _KINDS if name.startswith(kind.prefix))
            raise AwsError(kind.missing, f"The ID '{name}' does not exist")
    if call.action in _BY_DESCRIBE:
        return _describe(call, lag, _BY_DESCRIBE[call.action])
    known = _documents(call, _BY_DELETE[call.action]) if call.action in _BY_DELETE else {}
    reply = call.pass_on()
    if reply.status < _FIRST_FAILURE and call.action.startswith(("Create", "Allocate")):
        for name in _ids_in(parse(call.target, reply, call.request)):
            lag.births.setdefault(name, now)
    if reply.status < _FIRST_FAILURE:
        lag.deaths |= {name: (now, document) for name, document in known.items()}
    return reply


def _documents(call: Call, kind: Kind) -> dict[str, dict[str, Any]]:
    """Return the documents of the resources that the call is about to delete."""
    wanted = set(_ids_in(call.params))
    body = f"Action={kind.describe}&Version=2016-11-15".encode()
    items = call.aside(kind.describe, body)[kind.items]
    return {item[kind.id]: item for item in items if item.get(kind.id) in wanted}


def _describe(call: Call, lag: Lag, kind: Kind) -> Reply | dict[str, Any]:
    if call.params.get(kind.ids) or not lag.seconds["lists"]:
        return call.pass_on()
    output, oldest = call.output(), call.world.now() - lag.seconds["lists"]
    shown = [item for item in output[kind.items] if lag.births.get(item.get(kind.id), 0.0) <= oldest]
    ghosts = [
        document
        for name, (moment, document) in lag.deaths.items()
        if name.startswith(kind.prefix)
        and moment > oldest
        and _passes(document, call.params.get("Filters", []))
    ]
    present = {item.get(kind.id) for item in shown}
    output[kind.items] = shown + [item for item in ghosts if item[kind.id] not in present]
    return output


def _passes(document: dict[str, Any], filters: list[dict[str, Any]]) -> bool:
    """Return whether a deleted resource matches filters by tag or VPC; it never matches others."""
    tags = {f"tag:{tag['Key']}": tag["Value"] for tag in document.get("Tags", [])}
    facts = tags | {"vpc-id": document.get("VpcId", "")}
    keys = {name.removeprefix("tag:") for name in tags}
    return all(
        bool(keys & set(wish["Values"]))
        if wish["Name"] == "tag-key"
        else facts.get(wish["Name"]) in wish["Values"]
        for wish in filters
    )


@operation("*", "*", order=-80)
def watch_tags(call: Call) -> Reply:
    """Record the tagging API's index after every change."""
    reply = call.pass_on()
    lag = call.world.state(Lag)
    if lag.seconds["tags"] and not call.action.startswith(_READS):
        lag.index.append((call.world.now(), _resources(call)))
    return reply


def _resources(call: Call) -> list[dict[str, Any]]:
    """Return everything that the tagging API knows now."""
    output = call.aside("GetResources", b'{"ResourcesPerPage": 100}', service="resourcegroupstaggingapi")
    rows = output["ResourceTagMappingList"]
    while output.get("PaginationToken"):
        token = output["PaginationToken"]
        body = b'{"ResourcesPerPage": 100, "PaginationToken": "%s"}' % token.encode()
        output = call.aside("GetResources", body, service="resourcegroupstaggingapi")
        rows += output["ResourceTagMappingList"]
    return deepcopy(rows)


@operation("resourcegroupstaggingapi", "GetResources", order=-70)
def get_resources(call: Call) -> Reply | dict[str, Any]:
    """Answer from the index as it was `tags` seconds ago."""
    lag = call.world.state(Lag)
    if not lag.seconds["tags"] or call.is_aside:
        return call.pass_on()
    oldest = call.world.now() - lag.seconds["tags"]
    rows: list[dict[str, Any]] = []
    for moment, known in lag.index:
        rows = known if moment <= oldest else rows
    wanted = [row for row in rows if _fits(row, call.params)]
    start = int(call.params.get("PaginationToken") or 0)
    end = start + int(call.params.get("ResourcesPerPage") or _PAGE)
    return {
        "ResourceTagMappingList": wanted[start:end],
        "PaginationToken": str(end) if end < len(wanted) else "",
    }


def _fits(row: dict[str, Any], wish: dict[str, Any]) -> bool:
    tags = {tag["Key"]: tag["Value"] for tag in row["Tags"]}
    kinds = wish.get("ResourceTypeFilters") or []
    service, _, rest = row["ResourceARN"].split(":", 2)[2].partition(":")
    kind = f"{service}:{re.split('[:/]', rest.split(':', 2)[-1])[0]}"
    return (not kinds or service in kinds or kind in kinds) and all(
        entry["Key"] in tags and (not entry.get("Values") or tags[entry["Key"]] in entry["Values"])
        for entry in wish.get("TagFilters") or []
    )


def _write(world: World, wishes: dict[str, float]) -> None:
    lag = world.state(Lag)
    if unknown := sorted(set(wishes) - set(lag.seconds)):
        raise ValueError(f"nothing lags by {', '.join(unknown)}; there are: {', '.join(lag.seconds)}")
    lag.seconds.update({name: float(value) for name, value in wishes.items()})


setting("lag_s", read=lambda world: world.state(Lag).seconds, write=_write)
