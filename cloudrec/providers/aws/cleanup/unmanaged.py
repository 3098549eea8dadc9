"""The audit of an account: resources with cloudrec's tags or names, or in its networks, without a driver.

EC2's own lists confirm machines, disks, snapshots, images, interfaces and reservations: the tagging API also
returns what was tagged once, such as a terminated instance (the API's model: GetResources). The types that
drivers list by tag themselves are left to them. Everything else with the tag is named as the tagging API has
it, also if cloudrec does not know its type.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import ClientError

from cloudrec.engine.cost import BY_USE, FREE, times
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.api.driver import as_map
from cloudrec.providers.aws.api.ec2 import of_cluster
from cloudrec.providers.aws.cleanup.orphans import OWNER_TAG
from cloudrec.providers.base.audit import Audit, unmanaged
from cloudrec.providers.base.protocol import ON_DEMAND, SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from types_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef, NetworkInterfaceTypeDef

    from cloudrec.engine.graph import Observed
    from cloudrec.providers.aws.api.client import Aws

T = TypeVar("T")

_CONTROL_PLANE = "cluster"
_EKS_TAG = "eks:cluster-name"  # EKS sets it on the machines of its node groups
_INSIGHTS = "/aws/containerinsights/"
_TYPE = re.compile(r"([a-zA-Z0-9-]+)[:/]")  # what an ARN has before the name
_ENDED = ("shutting-down", "terminated")
_BILLED = ("pending", "running", "stopping")
_RESERVED = ("active", "pending")
# Types of ARNs whose tagged resources the drivers list themselves.
_OF_DRIVERS = frozenset(
    {
        "ec2:vpc",
        "ec2:subnet",
        "ec2:internet-gateway",
        "ec2:elastic-ip",
        "ec2:natgateway",
        "ec2:route-table",
        "ec2:security-group",
        "ec2:vpc-endpoint",
        "ec2:placement-group",
        "ec2:launch-template",
        "eks:cluster",
        "eks:nodegroup",
        "eks:addon",
        "eks:access-entry",
        "eks:podidentityassociation",
        "kms:key",
        "fsx:file-system",
        "s3",
        "iam:role",
        "iam:instance-profile",
    }
)
# Types of ARNs of which drivers list the names that begin so. The tagging API may still have a removed one.
_BY_NAME: Mapping[str, tuple[str, ...]] = {
    "ecr:repository": ("cloudrec/",),
    "logs:log-group": (f"/aws/eks/{eks.PREFIX}", "/cloudrec/", f"{_INSIGHTS}{eks.PREFIX}"),
}
# Types of ARNs that EC2's own lists below have.
_CONFIRMED = frozenset(
    {
        "ec2:instance",
        "ec2:volume",
        "ec2:snapshot",
        "ec2:image",
        "ec2:network-interface",
        "ec2:capacity-reservation",
    }
)


def audit(aws: Aws, cluster: str | None, managed: Sequence[Observed]) -> Audit:
    """Return the resources that no driver manages in one region.

    Args:
        aws: the account, in the region.
        cluster: the cluster's name; None for all clusters.
        managed: the resources that drivers manage. While a cluster's control plane is among them, its nodes
            and what EKS attaches to them are in use.
    """
    return _AwsSearch(aws=aws, cluster=cluster, managed=managed).audit()


def regions(aws: Aws) -> Sequence[str]:
    """Return the regions that are enabled for the account."""
    rows = aws.read(aws.ec2.describe_regions)["Regions"]  # without the ones that are not opted in
    return sorted(row["RegionName"] for row in rows)


@dataclass(kw_only=True)
class _AwsSearch:
    """One audit of one region."""

    aws: Aws
    cluster: str | None
    managed: Sequence[Observed]
    unsearched: list[str] = field(default_factory=list)

    def audit(self) -> Audit:
        """Return what no driver manages."""
        known = {seen.identity for seen in self.managed}
        machines = self._instances()
        used = {row["InstanceId"] for row in machines if self._is_used(as_map(row.get("Tags")))}
        attached = {row["InstanceId"] for row in machines}
        looks: list[Callable[[], Iterable[Observed]]] = [
            partial(self._machines, machines, used),
            partial(self._volumes, used),
            partial(self._interfaces, attached),
            self._snapshots,
            self._images,
            self._reservations,
            self._logs,
            self._others,
        ]
        with ThreadPoolExecutor(len(looks), thread_name_prefix="audit") as pool:
            found = [seen for rows in pool.map(lambda look: list(look()), looks) for seen in rows]
        fresh = {seen.identity: seen for seen in found if not _names(seen.identity) & known}
        return Audit(found=tuple(fresh.values()), unsearched=tuple(self.unsearched))

    @property
    def _living(self) -> set[str]:
        """The clusters whose control plane exists."""
        return {seen.cluster for seen in self.managed if seen.kind == _CONTROL_PLANE}

    def _is_used(self, tags: Mapping[str, str]) -> bool:
        """Return whether a resource belongs to a node of a living cluster."""
        return _EKS_TAG in tags and _title(tags) in self._living

    def _instances(self) -> list[InstanceTypeDef]:
        pages = self.aws.ec2.get_paginator("describe_instances").paginate
        reservations = self._listed(
            "ec2:DescribeInstances",
            lambda asked: self.aws.rows(pages, lambda page: page.get("Reservations"), Filters=asked),
            self._within(),
        )
        rows = [row for reservation in reservations for row in reservation["Instances"]]
        return [row for row in rows if row["State"]["Name"] not in _ENDED]

    def _machines(self, rows: Iterable[InstanceTypeDef], used: set[str]) -> Iterator[Observed]:
        for row in rows:
            if row["InstanceId"] in used:
                continue
            capacity = SPOT if row.get("InstanceLifecycle") == "spot" else ON_DEMAND
            zone, kind = row["Placement"].get("AvailabilityZone", ""), row["InstanceType"]
            is_billed = row["State"]["Name"] in _BILLED
            usd = self.aws.prices.node(kind, capacity, zone) if is_billed else FREE
            state = "" if is_billed else f", {row['State']['Name']}"
            yield self._seen(
                f"instance {row['InstanceId']} ({kind}{state})", row["InstanceId"], usd, row.get("Tags")
            )

    def _volumes(self, used: set[str]) -> Iterator[Observed]:
        pages = self.aws.ec2.get_paginator("describe_volumes").paginate
        rows = self._listed(
            "ec2:DescribeVolumes",
            lambda asked: self.aws.rows(pages, lambda page: page.get("Volumes"), Filters=asked),
        )
        for row in rows:
            tags = as_map(row.get("Tags"))
            attached = {each.get("InstanceId") for each in row.get("Attachments") or ()}
            # A driver has the disks of persistent volume claims.
            is_claimed = any(name.startswith(OWNER_TAG) for name in tags)
            if attached & used or is_claimed:
                continue
            usd = self.aws.prices.service(f"ebs-{row['VolumeType']}-gib", row["Size"])
            name = f"volume {row['VolumeId']} ({row['Size']} GiB)"
            yield self._seen(name, row["VolumeId"], usd, row.get("Tags"))

    def _interfaces(self, attached: set[str]) -> Iterator[Observed]:
        pages = self.aws.ec2.get_paginator("describe_network_interfaces").paginate
        rows = self._listed(
            "ec2:DescribeNetworkInterfaces",
            lambda asked: self.aws.rows(pages, lambda page: page.get("NetworkInterfaces"), Filters=asked),
            self._within(),
        )
        for row in rows:
            if not _is_in_use(row, attached):
                name = f"network interface {row['NetworkInterfaceId']}"
                yield self._seen(name, row["NetworkInterfaceId"], FREE, row.get("TagSet"))

    def _snapshots(self) -> Iterator[Observed]:
        pages = self.aws.ec2.get_paginator("describe_snapshots").paginate
        rows = self._listed(
            "ec2:DescribeSnapshots",
            lambda asked: self.aws.rows(
                pages, lambda page: page.get("Snapshots"), OwnerIds=["self"], Filters=asked
            ),
        )
        for row in rows:
            # A snapshot is billed by its blocks; the size of its volume is the most that they can be.
            usd = self.aws.prices.service("ebs-snapshot-gib", row["VolumeSize"])
            name = f"snapshot {row['SnapshotId']} ({row['VolumeSize']} GiB)"
            yield self._seen(name, row["SnapshotId"], usd, row.get("Tags"))

    def _images(self) -> Iterator[Observed]:
        pages = self.aws.ec2.get_paginator("describe_images").paginate
        rows = self._listed(
            "ec2:DescribeImages",
            lambda asked: self.aws.rows(
                pages, lambda page: page.get("Images"), Owners=["self"], Filters=asked
            ),
        )
        for row in rows:
            yield self._seen(f"image {row['ImageId']}", row["ImageId"], FREE, row.get("Tags"))

    def _reservations(self) -> Iterator[Observed]:
        pages = self.aws.ec2.get_paginator("describe_capacity_reservations").paginate
        rows = self._listed(
            "ec2:DescribeCapacityReservations",
            lambda asked: self.aws.rows(pages, lambda page: page.get("CapacityReservations"), Filters=asked),
        )
        for row in rows:
            if row["State"] not in _RESERVED:
                continue
            kind, count = row["InstanceType"], row["TotalInstanceCount"]
            # Reserved machines cost as much without an instance in them.
            usd = times(count, self.aws.prices.node(kind))
            identity = row["CapacityReservationId"]
            name = f"capacity reservation {identity} ({count} x {kind})"
            yield self._seen(name, identity, usd, row.get("Tags"))

    def _logs(self) -> Iterator[Observed]:
        pages = self.aws.logs.get_paginator("describe_log_groups").paginate
        prefix = f"{_INSIGHTS}{eks.PREFIX}{self.cluster or ''}"
        for row in self._permitted(
            "logs:DescribeLogGroups",
            lambda: self.aws.rows(pages, lambda page: page.get("logGroups"), logGroupNamePrefix=prefix),
        ):
            name = row["logGroupName"]
            title = name.removeprefix(_INSIGHTS).removeprefix(eks.PREFIX).partition("/")[0]
            if self.cluster in {None, title}:
                yield self._seen(f"log group {name}", name, BY_USE, (), title=title)

    def _others(self) -> Iterator[Observed]:
        """Yield what the tagging API has of other types, of whatever service."""
        tag = {"Key": TAG_CLUSTER, **({"Values": [self.cluster]} if self.cluster is not None else {})}
        pages = self.aws.tagging.get_paginator("get_resources").paginate
        for row in self._permitted(
            "tag:GetResources",
            lambda: self.aws.rows(
                pages,
                lambda page: page.get("ResourceTagMappingList"),
                TagFilters=[tag],  # type: ignore[list-item]  # a dictionary with the keys of the type
            ),
        ):
            arn = row["ResourceARN"]
            kind, name = _type_and_name(arn)
            if kind not in _OF_DRIVERS | _CONFIRMED and not name.startswith(_BY_NAME.get(kind, ())):
                yield self._seen(f"{kind} {name}", arn, None, row.get("Tags"))

    def _tagged(self) -> list[list[FilterTypeDef]]:
        """Return EC2's filters for the clusters' tags, each for a separate list."""
        title = "*" if self.cluster is None else self.cluster
        return [of_cluster(self.cluster), [{"Name": f"tag:{_EKS_TAG}", "Values": [f"{eks.PREFIX}{title}"]}]]

    def _within(self) -> list[list[FilterTypeDef]]:
        """Return EC2's filters for the clusters' networks; none without a network."""
        pages = self.aws.ec2.get_paginator("describe_vpcs").paginate
        rows = self._permitted(
            "ec2:DescribeVpcs",
            lambda: self.aws.rows(pages, lambda page: page.get("Vpcs"), Filters=of_cluster(self.cluster)),
        )
        vpcs = [row["VpcId"] for row in rows]
        return [[{"Name": "vpc-id", "Values": vpcs}]] if vpcs else []

    def _listed(
        self,
        action: str,
        read: Callable[[list[FilterTypeDef]], list[T]],
        others: Iterable[list[FilterTypeDef]] = (),
    ) -> list[T]:
        """Return what one of EC2's lists has with the clusters' tags, and by other filters."""
        return [
            row
            for asked in [*self._tagged(), *others]
            for row in self._permitted(action, partial(read, asked))
        ]

    def _permitted(self, action: str, read: Callable[[], list[T]]) -> list[T]:
        """Return a list; an empty one, which is noted, if the credentials lack the permission."""
        try:
            return read()
        except ClientError as error:
            if not errors.is_denied(error):
                raise
        sentence = f"{self.aws.region}: the credentials lack {action}"
        if sentence not in self.unsearched:
            self.unsearched.append(sentence)
        return []

    def _seen(
        self,
        what: str,
        identity: str,
        hourly_usd: float | None,
        tags: Iterable[Mapping[str, object]] | None,
        *,
        title: str = "",
    ) -> Observed:
        named = as_map(tags)
        return unmanaged(
            what,
            identity,
            cluster=title or _title(named) or self.cluster or "",
            location=self.aws.region,
            hourly_usd=hourly_usd,
            tags=named,
        )


def _is_in_use(row: NetworkInterfaceTypeDef, machines: set[str]) -> bool:
    """Return whether an interface belongs to a machine, a gateway or a control plane, and ends with it."""
    is_of_machine = row.get("Attachment", {}).get("InstanceId") in machines
    is_of_eks = row.get("Description", "").startswith(("Amazon EKS ", "aws-K8S-"))
    return is_of_machine or is_of_eks or bool(row.get("RequesterManaged"))


def _title(tags: Mapping[str, str]) -> str:
    return tags.get(TAG_CLUSTER) or tags.get(_EKS_TAG, "").removeprefix(eks.PREFIX)


def _names(identity: str) -> set[str]:
    """Return the identities that a driver may give a resource: its ARN, or its name alone."""
    return {identity, _type_and_name(identity)[1]} if identity.startswith("arn:") else {identity}


def _type_and_name(arn: str) -> tuple[str, str]:
    """Return an ARN's type with its service, such as ec2:instance, and its name; S3's ARNs have no type."""
    _, _, service, _, _, rest = arn.split(":", 5)
    match = _TYPE.match(rest)
    if match is None:
        return service, rest
    return f"{service}:{match[1]}", rest[match.end() :]
