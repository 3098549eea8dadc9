"""The cluster's add-ons, and which AWS roles its service accounts have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import needed
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.aws import eks
from cloudrec.providers.aws.cluster import CLUSTER
from cloudrec.providers.aws.identity import GUARD, LUSTRE_CSI_ACCOUNT, guard_account

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

ADDON, POD_IDENTITY = "addon", "pod-identity"
CNI, PROXY, AGENT, DNS = "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns"
LUSTRE_CSI, S3_CSI = "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver"
KINDS: Mapping[str, AbstractSet[str]] = {
    # Some need nodes, and some are needed by nodes: as long as a node is there, so is its network plugin.
    ADDON: frozenset({CLUSTER, POD_IDENTITY}),
    POD_IDENTITY: frozenset({CLUSTER, "role"}),
}

# GPU nodes are tainted, and their pods mount buckets too.
_S3_CONFIGURATION = json.dumps({"node": {"tolerateAllTaints": True}})


def resources(layout: Layout) -> list[Resource]:
    """Describe the add-ons: what nodes need to become ready at once, what needs nodes after them."""
    lustre = layout.settings.lustre_gib > 0
    cluster, nodes = layout.key(CLUSTER), layout.key("cpu-nodes")
    agent = layout.key(ADDON, AGENT)
    found = [_addon(layout, name, needs=(cluster,)) for name in (CNI, PROXY, AGENT)]
    found.append(_addon(layout, DNS, needs=(cluster, nodes)))
    found.append(_addon(layout, S3_CSI, needs=(cluster, nodes, agent), configuration=_S3_CONFIGURATION))
    found.append(_pod_identity(layout, "pod", layout.settings.service_account))
    found.append(_pod_identity(layout, GUARD, guard_account(layout)))
    if lustre:
        found.append(_pod_identity(layout, "lustre-csi", LUSTRE_CSI_ACCOUNT))
        needs = (cluster, nodes, agent, layout.key(POD_IDENTITY, "lustre-csi"))
        found.append(_addon(layout, LUSTRE_CSI, needs=needs))
    return found


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the drivers by kind."""
    return {ADDON: AddonDriver(aws), POD_IDENTITY: PodIdentityDriver(aws)}


def _addon(layout: Layout, name: str, *, needs: Sequence[str], configuration: str = "") -> Resource:
    return layout.resource(
        ADDON, name, needs=needs, properties={"addon": name, "configuration": configuration}
    )


def _pod_identity(layout: Layout, suffix: str, account: str) -> Resource:
    return layout.resource(
        POD_IDENTITY,
        suffix,
        needs=(layout.key(CLUSTER), layout.key("role", suffix)),
        properties={"account": account},
    )


class AddonDriver(eks.PartDriver):
    """Handles add-ons."""

    kind = ADDON
    changeable = frozenset({"configuration"})
    deadline_s = 1200.0

    def parts(self, cluster: str) -> Sequence[str]:
        """List by name."""
        names: Sequence[str] = self.aws.read("eks", "list_addons", "addons", clusterName=cluster)
        return names

    def described(self, cluster: str, name: str) -> eks.Row:
        """Describe it."""
        answer = self.aws.read("eks", "describe_addon", clusterName=cluster, addonName=name)
        row: eks.Row = answer["addon"]
        return row

    def find(self, resource: Resource) -> Observed | None:
        """Look the name up."""
        return self.seen(f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}", resource.properties["addon"])

    def state(self, row: eks.Row) -> tuple[Condition, str]:
        """An add-on is DEGRADED too as long as no node is there to run its pods."""
        condition, reason = super().state(row)
        return (Condition.PENDING if row["status"] == "DEGRADED" else condition), reason

    def properties(self, row: eks.Row) -> Mapping[str, Any]:
        """Tell its configuration."""
        return {"addon": row["addonName"], "configuration": row.get("configurationValues") or ""}

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it, in the version that EKS gives this version of Kubernetes."""
        cluster, name = needed(resource, identities, CLUSTER), resource.properties["addon"]
        try:
            self.eks.create_addon(
                clusterName=cluster,
                addonName=name,
                resolveConflicts="OVERWRITE",
                clientRequestToken=token,
                tags=dict(resource.tags),
                **_configured(resource),
            )
        except ClientError as error:
            if not eks.is_taken(error) or not self.adopted(resource, cluster, name):
                raise
        return f"{cluster}/{name}"

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Give it its configuration."""
        del identities
        cluster, name = eks.split(observed.identity)
        self.eks.update_addon(
            clusterName=cluster,
            addonName=name,
            resolveConflicts="OVERWRITE",
            **(_configured(resource) or {"configurationValues": "{}"}),
        )

    def remove(self, observed: Observed) -> None:
        """Delete it with its objects in the cluster."""
        cluster, name = eks.split(observed.identity)
        self.eks.delete_addon(clusterName=cluster, addonName=name)


class PodIdentityDriver(eks.PartDriver):
    """Handles pod identity associations. The name within the identity is EKS's id of the association."""

    kind = POD_IDENTITY

    def parts(self, cluster: str) -> Sequence[str]:
        """List by id."""
        return [row["associationId"] for row in self._listed(clusterName=cluster)]

    def described(self, cluster: str, name: str) -> eks.Row:
        """Describe it."""
        answer = self.aws.read(
            "eks", "describe_pod_identity_association", clusterName=cluster, associationId=name
        )
        row: eks.Row = answer["association"]
        return row

    def properties(self, row: eks.Row) -> Mapping[str, Any]:
        """Tell whose it is."""
        return {"account": f"{row['namespace']}/{row['serviceAccount']}"}

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create it; neither namespace nor service account needs to exist."""
        cluster = needed(resource, identities, CLUSTER)
        namespace, _, account = resource.properties["account"].partition("/")
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
            listed = self._listed(clusterName=cluster, namespace=namespace, serviceAccount=account)
            for row in listed:
                if identity := self.adopted(resource, cluster, row["associationId"]):
                    return identity
            raise
        return f"{cluster}/{answer['association']['associationId']}"

    def remove(self, observed: Observed) -> None:
        """Delete it."""
        cluster, name = eks.split(observed.identity)
        self.eks.delete_pod_identity_association(clusterName=cluster, associationId=name)

    def _listed(self, **where: str) -> list[eks.Row]:
        rows: list[eks.Row] = self.aws.read("eks", "list_pod_identity_associations", "associations", **where)
        return rows


def _configured(resource: Resource) -> dict[str, str]:
    configuration = resource.properties["configuration"]
    return {"configurationValues": configuration} if configuration else {}
