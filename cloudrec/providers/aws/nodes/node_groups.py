"""EKS's managed node groups. Their creation starts at once; a lack of capacity shows only later."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from botocore.exceptions import ClientError

from cloudrec.engine.context import UnavailableError
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, PoolMachines, Properties
from cloudrec.providers.aws import offers, price_list
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.cluster.cluster import CLUSTER
from cloudrec.providers.aws.network import network
from cloudrec.providers.aws.nodes.launch_templates import TAG_DIGEST, TEMPLATE
from cloudrec.providers.base.driver import all_needed, awaited, name_of, needed, with_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_eks.literals import AMITypesType, CapacityTypesType, NodegroupUpdateStrategiesType
    from types_boto3_eks.type_defs import (
        CreateNodegroupRequestTypeDef,
        NodegroupScalingConfigTypeDef,
        NodegroupTypeDef,
        NodegroupUpdateConfigTypeDef,
        NodeRepairConfigUnionTypeDef,
        TaintTypeDef,
        UpdateNodegroupVersionRequestTypeDef,
    )

    from cloudrec.engine.graph import Resource

CPU, GPU = "cpu-nodes", "gpu-nodes"
TAG_TYPE = "cloudrec-instance-type"  # on a node group: EKS does not report the type in its launch template

_EKS_CAPACITY_TYPES: Mapping[str, CapacityTypesType] = {
    "on-demand": "ON_DEMAND",
    "spot": "SPOT",
    "capacity-block": "CAPACITY_BLOCK",
}
# With these reasons another type, zone or capacity type may succeed: no capacity, a quota, no addresses left.
_CAPACITY = re.compile(
    r"Insufficient(Instance|Reserved\w*|Host)?Capacity|UnfulfillableCapacity|ReservationCapacityExceeded"
    r"|sufficient .*capacity|VcpuLimitExceeded|vCPU limit|InstanceLimitExceeded|MaxSpotInstanceCountExceeded"
    r"|InsufficientFreeAddresses|SpotMaxPriceTooLow|no Spot capacity|capacity-not-available"
    r"|InvalidCapacityReservationState",
    re.IGNORECASE,
)
_CONFIGURED: tuple[Literal["nodes", "labels", "strategy", "repaired"], ...] = (
    "nodes",
    "labels",
    "strategy",
    "repaired",
)
_ACTIVITIES = 3  # newest scaling activities to read


@dataclass(frozen=True, kw_only=True)
class NodeGroupProperties(Properties):
    """The requested properties of any node group.

    Attributes:
        group: EKS's name of the group.
        gpu: whether its nodes have GPUs.
        capacity: on-demand, spot or capacity-block.
        nodes: number of nodes.
        labels: labels of its nodes.
        taints: taints of its nodes.
        strategy: how EKS replaces nodes in an update: DEFAULT launches new ones first, MINIMAL ends old ones
            first.
        repaired: the number of unhealthy nodes that EKS repairs at once; 0 for none.
        template: the digest of what its launch template is made from.
        version: the version of Kubernetes; None for that of the cluster when the nodes are made.
    """

    group: str
    gpu: bool
    capacity: str
    nodes: int
    labels: dict[str, str]
    taints: list[TaintTypeDef]
    template: str
    strategy: NodegroupUpdateStrategiesType = "DEFAULT"
    repaired: int = 1
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class AwsCpuNodesProperties(NodeGroupProperties):
    """The requested properties of a group of CPU nodes.

    Attributes:
        instance_types: the types that EKS may choose from; its launch template names none.
    """

    instance_types: list[str]


@dataclass(frozen=True, kw_only=True)
class AwsGpuNodesProperties(NodeGroupProperties):
    """The requested properties of a group of GPU nodes.

    Attributes:
        instance_type: the type that its launch template names.
        zone: the availability zone of its nodes.
        max_price: most USD an hour for one spot node; None for EC2's limit, the on-demand price.
    """

    instance_type: str
    zone: str
    max_price: float | None = None


class _ObservedGroup(TypedDict):
    """The observed properties of a node group, by the names of its requested ones."""

    group: str
    nodes: int
    capacity: str
    labels: dict[str, str]
    template: str
    strategy: str
    repaired: int
    version: str | None


G_contra = TypeVar("G_contra", contravariant=True, bound=NodeGroupProperties)


class _NodeGroupDriver(eks.PartDriver["NodegroupTypeDef", G_contra]):
    """Handles node groups of one of the two kinds."""

    changeable = frozenset({"nodes", "labels", "strategy", "repaired", "template", "version"})
    deadline_s = 2700.0
    poll_s = 3.0

    def parts(self, cluster: str) -> Sequence[str]:
        """Return the names of the cluster's node groups, of both kinds."""
        pages = self.eks.get_paginator("list_nodegroups").paginate
        return self.aws.rows(pages, lambda page: page.get("nodegroups"), clusterName=cluster)

    def described(self, cluster: str, name: str) -> NodegroupTypeDef:
        """Return the node group; EKS's error if it does not exist."""
        answer = self.aws.read(self.eks.describe_nodegroup, clusterName=cluster, nodegroupName=name)
        return answer["nodegroup"]

    def facts(self, row: NodegroupTypeDef) -> eks.EksFacts:
        """Return status, issues, tags and creation time."""
        return eks.EksFacts(
            status=row.get("status", "ACTIVE"),
            issues=eks.issues(row.get("health", {}).get("issues")),
            tags=row.get("tags"),
            created=row.get("createdAt"),
        )

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the node groups of this kind, by their key tag: EKS lists those of both kinds."""
        return [seen for seen in super().search(cluster) if seen.key.partition("/")[0] == self.kind]

    def find(self, resource: Resource[G_contra]) -> Observed | None:
        """Find the node group by its name."""
        return self.seen(f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}", resource.properties.group)

    def state(self, row: NodegroupTypeDef) -> tuple[Condition, str]:
        """Return the condition; UNAVAILABLE for a lack of capacity, which scaling activities show early."""
        condition, reason = super().state(row)
        # EKS calls a group degraded while instances cannot be launched, and also later, without nodes: the
        # instances that run are the better sign, see `_machines`.
        if row["status"] == "DEGRADED" and _CAPACITY.search(reason):
            return Condition.READY, ""
        if condition is Condition.FAILED:
            reason = "; ".join(filter(None, [reason, self._launch_failure(row)]))
            return (Condition.UNAVAILABLE if _CAPACITY.search(reason) else Condition.FAILED), reason
        if row["status"] == "CREATING" and (failure := self._launch_failure(row)):
            # EKS reports a failure only after half an hour; until then other types or zones can be tried.
            return (Condition.UNAVAILABLE if _CAPACITY.search(failure) else condition), failure
        return condition, reason

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the condition; a group whose instances do not all run is not ready, whatever EKS says."""
        row = self.described(*eks.split(identity))
        condition, reason = self.state(row)
        if condition is not Condition.READY:
            return condition, reason
        machines = self._machines(row)
        return awaited(machines, is_shortage=bool(_CAPACITY.search(machines.reason)))

    def observe(self, cluster: str, name: str, row: NodegroupTypeDef) -> Observed:
        """Return a group as an `Observed`, with the instances that run; only those cost something."""
        seen = super().observe(cluster, name, row)
        if seen.condition is not Condition.READY:
            return seen
        machines = self._machines(row)
        return replace(seen, machines=machines, hourly_usd=self._hourly(row, machines.running))

    def _machines(self, row: NodegroupTypeDef) -> PoolMachines:
        wanted = row["scalingConfig"]["desiredSize"]
        running, reason = self._running(row["clusterName"], row["nodegroupName"]), ""
        if running < wanted:
            reason = self._launch_failure(row) or eks.issues(row.get("health", {}).get("issues"))
        return PoolMachines(running=running, wanted=wanted, reason=reason, is_retried=True)

    def _running(self, cluster: str, name: str) -> int:
        """Return how many instances of a group run or start."""
        reservations = self.aws.rows(
            self.aws.ec2.get_paginator("describe_instances").paginate,
            lambda page: page.get("Reservations"),
            Filters=[
                {"Name": "tag:eks:cluster-name", "Values": [cluster]},
                {"Name": "tag:eks:nodegroup-name", "Values": [name]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ],
        )
        return sum(len(each.get("Instances") or ()) for each in reservations)

    def properties(self, row: NodegroupTypeDef) -> Mapping[str, object]:
        """Return the observed properties."""
        return self._there(row)

    def _there(self, row: NodegroupTypeDef) -> _ObservedGroup:
        """Return the observed properties."""
        tags = row.get("tags") or {}
        return {
            "group": row["nodegroupName"],
            "nodes": row["scalingConfig"]["desiredSize"],
            "capacity": next(
                (ours for ours, theirs in _EKS_CAPACITY_TYPES.items() if theirs == row["capacityType"]), ""
            ),
            "labels": dict(row.get("labels") or {}),
            "template": tags.get(TAG_DIGEST, ""),
            "strategy": (row.get("updateConfig") or {}).get("updateStrategy", "DEFAULT"),
            "repaired": _repaired(row),
            "version": row.get("version"),
        }

    def hourly_usd(self, row: NodegroupTypeDef) -> float | None:
        """Return the USD an hour of its nodes; the most that they cost if a spot price is not known."""
        return self._hourly(row, self._there(row)["nodes"])

    def _hourly(self, row: NodegroupTypeDef, nodes: int) -> float | None:
        tags, there = row.get("tags") or {}, self._there(row)
        name = tags.get(TAG_TYPE, "")
        # The group's name in cloudrec ends with its type, zone and capacity type.
        zone = name_of(tags, "").removesuffix(f"-{there['capacity']}").rpartition(f"{name}-")[2]
        return self.aws.prices.nodes(name, nodes, there["capacity"], zone)

    def make(self, resource: Resource[G_contra], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group."""
        asked = resource.properties
        cluster, name = needed(resource, identities, CLUSTER), asked.group
        wanted: CreateNodegroupRequestTypeDef = {
            "clusterName": cluster,
            "nodegroupName": name,
            "scalingConfig": _scaling(asked.nodes),
            "subnets": all_needed(resource, identities, network.SUBNET),
            "amiType": _image(asked),
            "nodeRole": needed(resource, identities, "role"),
            "labels": asked.labels,
            "taints": asked.taints,
            "capacityType": _EKS_CAPACITY_TYPES[asked.capacity],
            "launchTemplate": {"id": needed(resource, identities, TEMPLATE)},  # its default version
            "updateConfig": _update_config(asked),
            "nodeRepairConfig": _repair_config(asked),
            "clientRequestToken": token,
            "tags": dict(resource.tags),
        }
        if isinstance(asked, AwsCpuNodesProperties):
            wanted["instanceTypes"] = asked.instance_types
        if asked.version is not None:
            wanted["version"] = asked.version
        try:
            self.eks.create_nodegroup(**wanted)
        except ClientError as error:
            if not eks.is_taken(error) or not self.adopted(resource, cluster, name):
                raise
        return f"{cluster}/{name}"

    def change(
        self, resource: Resource[G_contra], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Start one update after the other; EKS refuses the next one while an update is in progress."""
        asked = resource.properties
        cluster, name = eks.split(observed.identity)
        row = self.described(cluster, name)
        there = self._there(row)
        if any(getattr(asked, each) != there[each] for each in _CONFIGURED):
            self.eks.update_nodegroup_config(
                clusterName=cluster,
                nodegroupName=name,
                scalingConfig=_scaling(asked.nodes),
                labels={
                    "addOrUpdateLabels": asked.labels,
                    "removeLabels": sorted(there["labels"].keys() - asked.labels.keys()),
                },
                updateConfig=_update_config(asked),
                nodeRepairConfig=_repair_config(asked),
            )
        version = asked.version
        if asked.template != there["template"] or (version and version != there["version"]):
            template = needed(resource, identities, TEMPLATE)
            listed = self.aws.rows(
                self.aws.ec2.get_paginator("describe_launch_templates").paginate,
                lambda page: page.get("LaunchTemplates"),
                LaunchTemplateIds=[template],
            )
            wanted: UpdateNodegroupVersionRequestTypeDef = {
                "clusterName": cluster,
                "nodegroupName": name,
                "launchTemplate": {"id": template, "version": str(listed[0]["DefaultVersionNumber"])},
            }
            if version:
                wanted["version"] = version
            self.eks.update_nodegroup_version(**wanted)
            # The tag comes last: an update that EKS has refused is still a difference.
            self.eks.tag_resource(resourceArn=row["nodegroupArn"], tags={TAG_DIGEST: asked.template})

    def remove(self, observed: Observed) -> None:
        """Delete the node group; EKS drains its nodes first."""
        cluster, name = eks.split(observed.identity)
        self.eks.delete_nodegroup(clusterName=cluster, nodegroupName=name)

    def holds(self, observed: Observed) -> bool:
        """Return whether a group has instances: of those that were asked for, EC2 may have had some."""
        return self._running(*eks.split(observed.identity)) > 0

    def _launch_failure(self, row: NodegroupTypeDef) -> str:
        """Return why the newest attempt to launch a node failed; empty if it did not fail."""
        for group in row.get("resources", {}).get("autoScalingGroups") or ():
            activities = self.aws.read(
                self.aws.autoscaling.describe_scaling_activities,
                AutoScalingGroupName=group["name"],
                MaxRecords=_ACTIVITIES,
            )["Activities"]
            for each in activities:  # the newest first; the end of another instance says nothing
                if each["StatusCode"] == "Failed":
                    return str(each.get("StatusMessage", ""))
                if each.get("Description", "").startswith("Launching"):
                    break
        return ""


class AwsCpuNodesDriver(_NodeGroupDriver[AwsCpuNodesProperties]):
    """Handles the CPU nodes, which run everything but training."""

    kind = CPU


class AwsGpuNodesDriver(_NodeGroupDriver[AwsGpuNodesProperties]):
    """Handles the GPU nodes, which run training."""

    kind = GPU

    def as_before(
        self, resource: Resource[AwsGpuNodesProperties], observed: Observed
    ) -> Resource[AwsGpuNodesProperties] | None:
        """Return the pool with the size that it had; None if it had no nodes."""
        return with_nodes(resource, observed.properties.get("nodes"))

    def make(
        self, resource: Resource[AwsGpuNodesProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the group.

        Raises:
            UnavailableError: the price of a spot node is above the setting max_price, or is not known.
        """
        self._refuse_price(resource.properties)
        return super().make(resource, token=token, identities=identities)

    def _refuse_price(self, asked: AwsGpuNodesProperties) -> None:
        """Refuse spot nodes whose price is above the limit or unknown: an unknown one may be above it."""
        limit, name, zone = asked.max_price, asked.instance_type, asked.zone
        if limit is None or asked.capacity != "spot":
            return
        found = {row.region: row.usd for row in price_list.spot(self.aws, [name])}
        price = found.get(zone)
        if price is None:
            raise UnavailableError(
                f"the price of a spot {name} in {zone} is not known; the limit is ${limit:.2f}/h",
                remedy="name other types or zones, or leave the setting max_price out",
            )
        if price > limit:
            raise UnavailableError(
                f"a spot {name} in {zone} is ${price:.2f}/h; the limit is ${limit:.2f}/h",
                remedy="raise the setting max_price",
            )


def _scaling(nodes: int) -> NodegroupScalingConfigTypeDef:
    return {"minSize": nodes, "maxSize": max(nodes, 1), "desiredSize": nodes}  # EKS allows no maximum of 0


def _update_config(asked: NodeGroupProperties) -> NodegroupUpdateConfigTypeDef:
    return {"maxUnavailable": 1, "updateStrategy": asked.strategy}


def _repair_config(asked: NodeGroupProperties) -> NodeRepairConfigUnionTypeDef:
    # A repair ends a node under a run, which restarts from its checkpoint: never several at once.
    if not asked.repaired:
        return {"enabled": False}
    return {"enabled": True, "maxParallelNodesRepairedCount": asked.repaired}


def _repaired(row: NodegroupTypeDef) -> int:
    """Return how many nodes EKS repairs at once; 0 for none, and -1 for a share of them."""
    config = row.get("nodeRepairConfig") or {}
    return config.get("maxParallelNodesRepairedCount", -1) if config.get("enabled") else 0


def _image(asked: NodeGroupProperties) -> AMITypesType:
    """Return EKS's type of image: for GPU nodes that of the machine, with NVIDIA's driver."""
    if not isinstance(asked, AwsGpuNodesProperties):
        return "AL2023_x86_64_STANDARD"
    known = offers.KNOWN.get(asked.instance_type)
    return known.image if known is not None else offers.IMAGE
