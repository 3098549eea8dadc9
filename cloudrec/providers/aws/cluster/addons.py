"""The cluster's add-ons, and the AWS roles of its service accounts (pod identity associations)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import BY_USE, FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, Properties
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.cluster.cluster import CLUSTER
from cloudrec.providers.aws.cluster.logs import GROUP
from cloudrec.providers.aws.identity.identity import (
    CNI_ACCOUNT,
    GUARD,
    LUSTRE_CSI_ACCOUNT,
    METRICS,
    METRICS_ACCOUNT,
    guard_account,
)
from cloudrec.providers.base.driver import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_eks.type_defs import (
        AddonTypeDef,
        CreateAddonRequestTypeDef,
        ListPodIdentityAssociationsRequestPaginateTypeDef,
        PodIdentityAssociationSummaryTypeDef,
        PodIdentityAssociationTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

ADDON, POD_IDENTITY = "addon", "pod-identity"
CNI, PROXY, AGENT, DNS = "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns"
LUSTRE_CSI, S3_CSI = "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver"
MONITOR = "eks-node-monitoring-agent"
INSIGHTS = "amazon-cloudwatch-observability"
KINDS: Mapping[str, AbstractSet[str]] = {
    # Nodes are not among the needs: they need the network plugin themselves, so it is deleted after them.
    ADDON: frozenset({CLUSTER, POD_IDENTITY, GROUP}),
    POD_IDENTITY: frozenset({CLUSTER, "role"}),
}

# Without it, the network plugin enforces no NetworkPolicy. The value is a text in EKS's schema.
_CNI_CONFIGURATION = json.dumps({"enableNetworkPolicy": "true"})
# Pods on GPU nodes mount the bucket too, and GPU nodes have a taint.
_S3_CONFIGURATION = json.dumps({"node": {"tolerateAllTaints": True}})
# The agent reports XID, NVLink and ECC errors of GPUs as conditions of the node, and EKS repairs the node. It
# reads them from DCGM, whose pods tolerate no taint by default (the chart of aws/eks-node-monitoring-agent).
_MONITOR_CONFIGURATION = json.dumps({"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}})

# Metrics of nodes, pods, GPUs and EFA alone. By default the agent also sends the logs of all containers, and
# changes the pods of runs to trace them (aws-observability/helm-charts, amazon-cloudwatch-observability, and
# "Install the CloudWatch agent with the Amazon CloudWatch Observability EKS add-on", its user guide).
_INSIGHTS_CONFIGURATION = json.dumps(
    {
        "containerLogs": {"enabled": False},
        "manager": {"applicationSignals": {"autoMonitor": {"monitorAllServices": False}}},
        "agent": {
            "config": {
                "logs": {"metrics_collected": {"kubernetes": {"enhanced_container_insights": True}}},
            }
        },
    }
)


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the add-ons: those that nodes need to become ready, then those whose pods need nodes."""
    lustre = layout.settings.lustre_gib > 0
    cluster, nodes = layout.key(CLUSTER), layout.key("cpu-nodes")
    agent = layout.key(ADDON, AGENT)
    found: list[Resource] = [_addon(layout, name, needs=(cluster,)) for name in (PROXY, AGENT)]
    # Pods get the role of an association that exists when they start.
    rights = _pod_identity(layout, "cni", CNI_ACCOUNT)
    found += [rights, _addon(layout, CNI, needs=(cluster, rights.key), configuration=_CNI_CONFIGURATION)]
    found.append(_addon(layout, DNS, needs=(cluster, nodes)))
    found.append(_addon(layout, S3_CSI, needs=(cluster, nodes, agent), configuration=_S3_CONFIGURATION))
    found.append(_addon(layout, MONITOR, needs=(cluster, nodes), configuration=_MONITOR_CONFIGURATION))
    found.append(_pod_identity(layout, "pod", layout.settings.service_account))
    found.append(_pod_identity(layout, GUARD, guard_account(layout)))
    if lustre:
        found.append(_pod_identity(layout, "lustre-csi", LUSTRE_CSI_ACCOUNT))
        needs = (cluster, nodes, agent, layout.key(POD_IDENTITY, "lustre-csi"))
        found.append(_addon(layout, LUSTRE_CSI, needs=needs))
    if layout.has_managed_metrics:
        found.append(_pod_identity(layout, METRICS, METRICS_ACCOUNT))
        # The log group is there before the agent, and is deleted after it: the agent would create it again.
        its = (layout.key(POD_IDENTITY, METRICS), layout.key(GROUP, METRICS))
        insights = _addon(
            layout, INSIGHTS, needs=(cluster, nodes, agent, *its), configuration=_INSIGHTS_CONFIGURATION
        )
        found.append(replace(insights, hourly_usd=BY_USE))
    return found


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {ADDON: AddonDriver(aws), POD_IDENTITY: PodIdentityDriver(aws)}


def _addon(
    layout: AwsLayout, name: str, *, needs: Sequence[str], configuration: str = ""
) -> Resource[AddonProperties]:
    return layout.resource(
        ADDON,
        name,
        needs=needs,
        properties=AddonProperties(addon=name, configuration=configuration),
        hourly_usd=FREE,
    )


def _pod_identity(layout: AwsLayout, suffix: str, account: str) -> Resource[PodIdentityProperties]:
    return layout.resource(
        POD_IDENTITY,
        suffix,
        needs=(layout.key(CLUSTER), layout.key("role", suffix)),
        properties=PodIdentityProperties(account=account),
        hourly_usd=FREE,
    )


@dataclass(frozen=True, kw_only=True)
class AddonProperties(Properties):
    """The requested properties of an add-on.

    Attributes:
        addon: the add-on's name in EKS.
        configuration: its configuration as JSON; empty for EKS's defaults.
    """

    addon: str
    configuration: str


class AddonDriver(eks.PartDriver["AddonTypeDef", AddonProperties]):
    """Handles add-ons."""

    kind = ADDON
    charge = FREE
    changeable = frozenset({"configuration"})
    deadline_s = 1200.0

    def parts(self, cluster: str) -> Sequence[str]:
        """Return the names of the cluster's add-ons."""
        pages = self.eks.get_paginator("list_addons").paginate
        return self.aws.rows(pages, lambda page: page.get("addons"), clusterName=cluster)

    def described(self, cluster: str, name: str) -> AddonTypeDef:
        """Return the add-on; EKS's error if it does not exist."""
        return self.aws.read(self.eks.describe_addon, clusterName=cluster, addonName=name)["addon"]

    def facts(self, row: AddonTypeDef) -> eks.EksFacts:
        """Return status, issues, tags and creation time."""
        return eks.EksFacts(
            status=row.get("status", "ACTIVE"),
            issues=eks.issues(row.get("health", {}).get("issues")),
            tags=row.get("tags"),
            created=row.get("createdAt"),
        )

    def find(self, resource: Resource[AddonProperties]) -> Observed | None:
        """Find the add-on by its name."""
        return self.seen(f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}", resource.properties.addon)

    def state(self, row: AddonTypeDef) -> tuple[Condition, str]:
        """Return the condition; DEGRADED counts as PENDING: EKS reports it until a node runs the pods."""
        condition, reason = super().state(row)
        return (Condition.PENDING if row["status"] == "DEGRADED" else condition), reason

    def properties(self, row: AddonTypeDef) -> Mapping[str, object]:
        """Return name and configuration."""
        return {"addon": row["addonName"], "configuration": row.get("configurationValues") or ""}

    def make(self, resource: Resource[AddonProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the add-on in EKS's default version for the cluster's Kubernetes."""
        cluster, name = needed(resource, identities, CLUSTER), resource.properties.addon
        try:
            asked: CreateAddonRequestTypeDef = {
                "clusterName": cluster,
                "addonName": name,
                "resolveConflicts": "OVERWRITE",
                "clientRequestToken": token,
                "tags": dict(resource.tags),
            }
            if resource.properties.configuration:
                asked["configurationValues"] = resource.properties.configuration
            self.eks.create_addon(**asked)
        except ClientError as error:
            if not eks.is_taken(error) or not self.adopted(resource, cluster, name):
                raise
        return f"{cluster}/{name}"

    def change(
        self, resource: Resource[AddonProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Update the add-on's configuration."""
        del identities
        cluster, name = eks.split(observed.identity)
        self.eks.update_addon(
            clusterName=cluster,
            addonName=name,
            resolveConflicts="OVERWRITE",
            configurationValues=resource.properties.configuration or "{}",
        )

    def remove(self, observed: Observed) -> None:
        """Delete the add-on with its objects in the cluster."""
        cluster, name = eks.split(observed.identity)
        self.eks.delete_addon(clusterName=cluster, addonName=name)


@dataclass(frozen=True, kw_only=True)
class PodIdentityProperties(Properties):
    """The requested properties of a pod identity association.

    Attributes:
        account: the service account that gets the role, as namespace/name.
    """

    account: str


class PodIdentityDriver(eks.PartDriver["PodIdentityAssociationTypeDef", PodIdentityProperties]):
    """Handles pod identity associations. The name in the identity is EKS's ID of the association."""

    kind = POD_IDENTITY
    charge = FREE

    def parts(self, cluster: str) -> Sequence[str]:
        """Return the IDs of the cluster's associations."""
        return [row["associationId"] for row in self._listed({"clusterName": cluster})]

    def described(self, cluster: str, name: str) -> PodIdentityAssociationTypeDef:
        """Return the association; EKS's error if it does not exist."""
        answer = self.aws.read(
            self.eks.describe_pod_identity_association, clusterName=cluster, associationId=name
        )
        return answer["association"]

    def facts(self, row: PodIdentityAssociationTypeDef) -> eks.EksFacts:
        """Return tags and creation time; an association has no status."""
        return eks.EksFacts(tags=row.get("tags"), created=row.get("createdAt"))

    def properties(self, row: PodIdentityAssociationTypeDef) -> Mapping[str, object]:
        """Return the service account."""
        return {"account": f"{row['namespace']}/{row['serviceAccount']}"}

    def make(
        self, resource: Resource[PodIdentityProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the association; neither namespace nor service account needs to exist."""
        cluster = needed(resource, identities, CLUSTER)
        namespace, _, account = resource.properties.account.partition("/")
        try:
            answer = self.eks.create_pod_identity_association(
                clusterName=cluster,
                namespace=namespace,
                serviceAccount=account,
                roleArn=needed(resource, identities, "role"),
                clientRequestToken=token,
                tags=dict(resource.tags),
            )
        except ClientError as error:
            if not eks.is_taken(error):
                raise
            listed = self._listed({"clusterName": cluster, "namespace": namespace, "serviceAccount": account})
            for row in listed:
                if identity := self.adopted(resource, cluster, row["associationId"]):
                    return identity
            raise
        return f"{cluster}/{answer['association']['associationId']}"

    def remove(self, observed: Observed) -> None:
        """Delete the association."""
        cluster, name = eks.split(observed.identity)
        self.eks.delete_pod_identity_association(clusterName=cluster, associationId=name)

    def _listed(
        self, where: ListPodIdentityAssociationsRequestPaginateTypeDef
    ) -> list[PodIdentityAssociationSummaryTypeDef]:
        pages = self.eks.get_paginator("list_pod_identity_associations").paginate
        return self.aws.rows(pages, lambda page: page.get("associations"), **where)
