"""EKS's managed node groups. Creating one succeeds at once; whether there is capacity shows later."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import all_needed, needed
from cloudrec.engine.context import UnavailableError
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import eks, network, prices
from cloudrec.providers.aws.cluster import CLUSTER
from cloudrec.providers.aws.launch_templates import TAG_DIGEST, TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.engine.graph import Resource

CPU, GPU = "cpu-nodes", "gpu-nodes"
TAG_TYPE = "cloudrec-instance-type"  # on a node group, which does not tell its template's

_MARKETS = {"on-demand": "ON_DEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
# Another type, zone or market may do: there is none, the account may have no more, or addresses are out.
_CAPACITY = re.compile(
    r"Insufficient(Instance|Reserved\w*|Host)?Capacity|UnfulfillableCapacity|ReservationCapacityExceeded"
    r"|sufficient .*capacity|VcpuLimitExceeded|vCPU limit|InstanceLimitExceeded|MaxSpotInstanceCountExceeded"
    r"|InsufficientFreeAddresses|SpotMaxPriceTooLow|no Spot capacity|capacity-not-available",
    re.IGNORECASE,
)
_ACTIVITIES = 3  # scaling activities that are read: the newest tells what is going on


class _NodeGroupDriver(eks.PartDriver):
    """Handles node groups, of one of the two kinds."""

    changeable = frozenset({"nodes", "labels", "template", "version"})
    deadline_s = 2700.0
    poll_s = 3.0

    def parts(self, cluster: str) -> Sequence[str]:
        """List by name."""
        names: Sequence[str] = self.aws.read("eks", "list_nodegroups", "nodegroups", clusterName=cluster)
        return names

    def described(self, cluster: str, name: str) -> eks.Row:
        """Describe it."""
        answer = self.aws.read("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)
        row: eks.Row = answer["nodegroup"]
        return row

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List those of this kind: both are node groups to EKS."""
        return [seen for seen in super().search(cluster) if seen.key.partition("/")[0] == self.kind]

    def find(self, resource: Resource) -> Observed | None:
        """Look the name up."""
        return self.seen(f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}", resource.properties["group"])

    def state(self, row: eks.Row) -> tuple[Condition, str]:
        """Tell how far it has come; what has no capacity is told apart from what is broken, and early."""
        condition, reason = super().state(row)
        if condition is Condition.FAILED:
            reason = "; ".join(filter(None, [reason, self._launch_failure(row)]))
            return (Condition.UNAVAILABLE if _CAPACITY.search(reason) else Condition.FAILED), reason
        if row["status"] == "CREATING" and (failure := self._launch_failure(row)):
            # EKS itself gives up after half an hour only.
            return (Condition.UNAVAILABLE if _CAPACITY.search(failure) else condition), failure
        return condition, reason

    def properties(self, row: eks.Row) -> Mapping[str, Any]:
        """Tell size, market, labels and what its template was made from."""
        tags = row.get("tags") or {}
        return {
            "group": row["nodegroupName"],
            "nodes": row["scalingConfig"]["desiredSize"],
            "market": next((ours for ours, theirs in _MARKETS.items() if theirs == row["capacityType"]), ""),
            "labels": dict(row.get("labels") or {}),
            "template": tags.get(TAG_DIGEST, ""),
            "version": row.get("version"),
        }

    def hourly_usd(self, row: eks.Row) -> float:
        """Tell what its nodes cost at most."""
        tags = row.get("tags") or {}
        return self.aws.prices.nodes(tags.get(TAG_TYPE, ""), row["scalingConfig"]["desiredSize"])

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the group.

        Raises:
            UnavailableError: spot nodes cost more than the settings allow.
        """
        asked = resource.properties
        self._refuse_price(asked)
        cluster, name = needed(resource, identities, CLUSTER), asked["group"]
        types = list(asked.get("instance_types") or ())
        try:
            self.eks.create_nodegroup(
                clusterName=cluster,
                nodegroupName=name,
                scalingConfig=_scaling(asked["nodes"]),
                subnets=all_needed(resource, identities, network.SUBNET),
                amiType="AL2023_x86_64_NVIDIA" if asked["gpu"] else "AL2023_x86_64_STANDARD",
                nodeRole=needed(resource, identities, "role"),
                labels=dict(asked["labels"]),
                taints=list(asked["taints"]),
                capacityType=_MARKETS[asked["market"]],
                launchTemplate={"id": needed(resource, identities, TEMPLATE)},  # its default version
                nodeRepairConfig={"enabled": True},
                clientRequestToken=token,
                tags=dict(resource.tags),
                **({"instanceTypes": types} if types else {}),
                **({"version": asked["version"]} if "version" in asked else {}),
            )
        except ClientError as error:
            if not eks.is_taken(error) or not self.adopted(resource, cluster, name):
                raise
        return f"{cluster}/{name}"

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Make one kind of update after the other; EKS refuses the next while it makes one."""
        asked = resource.properties
        cluster, name = eks.split(observed.identity)
        row = self.described(cluster, name)
        there = self.properties(row)
        group = {"clusterName": cluster, "nodegroupName": name}
        if asked["nodes"] != there["nodes"] or asked["labels"] != there["labels"]:
            self.eks.update_nodegroup_config(
                **group,
                scalingConfig=_scaling(asked["nodes"]),
                labels={
                    "addOrUpdateLabels": dict(asked["labels"]),
                    "removeLabels": sorted(there["labels"].keys() - asked["labels"].keys()),
                },
            )
        version = {"version": asked["version"]} if "version" in asked else {}
        if asked["template"] != there["template"] or (version and asked["version"] != there["version"]):
            template = needed(resource, identities, TEMPLATE)
            listed = self.aws.read(
                "ec2", "describe_launch_templates", "LaunchTemplates", LaunchTemplateIds=[template]
            )
            newest = {"id": template, "version": str(listed[0]["DefaultVersionNumber"])}
            self.eks.update_nodegroup_version(**group, **version, launchTemplate=newest)
            self.eks.tag_resource(resourceArn=row["nodegroupArn"], tags={TAG_DIGEST: asked["template"]})

    def remove(self, observed: Observed) -> None:
        """Delete it; its nodes are drained first."""
        cluster, name = eks.split(observed.identity)
        self.eks.delete_nodegroup(clusterName=cluster, nodegroupName=name)

    def _launch_failure(self, row: eks.Row) -> str:
        """Why the newest attempt to launch a node failed; empty where it did not."""
        for group in row.get("resources", {}).get("autoScalingGroups") or ():
            activities = self.aws.read(
                "autoscaling",
                "describe_scaling_activities",
                AutoScalingGroupName=group["name"],
                MaxRecords=_ACTIVITIES,
            )["Activities"]
            if activities and activities[0]["StatusCode"] == "Failed":
                return str(activities[0].get("StatusMessage", ""))
        return ""

    def _refuse_price(self, asked: Mapping[str, Any]) -> None:
        limit, (name, zone) = asked.get("max_price"), (asked.get("instance_type", ""), asked.get("zone", ""))
        if limit is None or asked["market"] != "spot":
            return
        price = prices.spot(self.aws, [name]).get((name, zone))
        if price is not None and price > limit:
            raise UnavailableError(
                f"a spot {name} in {zone} is ${price:.2f}/h; the limit is ${limit:.2f}/h",
                remedy="raise the setting max_price",
            )


class CpuNodesDriver(_NodeGroupDriver):
    """Handles the nodes for what is no training."""

    kind = CPU


class GpuNodesDriver(_NodeGroupDriver):
    """Handles the nodes that train."""

    kind = GPU


def _scaling(nodes: int) -> dict[str, int]:
    return {"minSize": nodes, "maxSize": nodes, "desiredSize": nodes}
