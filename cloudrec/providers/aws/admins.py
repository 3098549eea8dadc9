"""Who may administer the cluster beside its creator: one access entry for each principal that is named."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import needed
from cloudrec.engine.graph import TAG_CLUSTER, Observed
from cloudrec.providers.aws import eks
from cloudrec.providers.aws.cluster import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.driver import AwsDriver
    from cloudrec.providers.aws.layout import Layout

ENTRY = "access-entry"
KINDS: Mapping[str, AbstractSet[str]] = {ENTRY: frozenset({CLUSTER})}
_POLICY = "arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def resources(layout: Layout) -> list[Resource]:
    """Describe an access entry for each principal of the settings."""
    policy = _POLICY.format(partition=layout.partition)
    return [
        layout.resource(
            ENTRY,
            hashlib.sha256(principal.encode()).hexdigest()[:8],
            needs=(layout.key(CLUSTER),),
            properties={"principal": principal, "policies": [policy]},
        )
        for principal in layout.settings.admins
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver."""
    return {ENTRY: AccessEntryDriver(aws)}


class AccessEntryDriver(eks.PartDriver):
    """Handles access entries. The name within the identity is the principal's ARN."""

    kind = ENTRY
    changeable = frozenset({"policies"})

    def parts(self, cluster: str) -> Sequence[str]:
        """List by principal: EKS makes some itself, which are not ours."""
        names: Sequence[str] = self.aws.read(
            "eks", "list_access_entries", "accessEntries", clusterName=cluster
        )
        return names

    def described(self, cluster: str, name: str) -> eks.Row:
        """Describe it with its policies."""
        answer = self.aws.read("eks", "describe_access_entry", clusterName=cluster, principalArn=name)
        policies = self.aws.read(
            "eks",
            "list_associated_access_policies",
            "associatedAccessPolicies",
            clusterName=cluster,
            principalArn=name,
        )
        return {**answer["accessEntry"], "policies": sorted(policy["policyArn"] for policy in policies)}

    def find(self, resource: Resource) -> Observed | None:
        """Look the principal up."""
        return self.seen(f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}", resource.properties["principal"])

    def properties(self, row: eks.Row) -> Mapping[str, Any]:
        """Tell principal and policies."""
        return {"principal": row["principalArn"], "policies": row["policies"]}

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the entry."""
        cluster, principal = needed(resource, identities, CLUSTER), resource.properties["principal"]
        try:
            self.eks.create_access_entry(
                clusterName=cluster,
                principalArn=principal,
                type="STANDARD",
                clientRequestToken=token,
                tags=dict(resource.tags),
            )
        except ClientError as error:
            if not eks.is_taken(error) or not self.adopted(resource, cluster, principal):
                raise
        return f"{cluster}/{principal}"

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Associate the policies that are missing, and no others."""
        del identities
        cluster, principal = eks.split(identity)
        wanted, there = (
            set(resource.properties["policies"]),
            set(self.described(cluster, principal)["policies"]),
        )
        for policy in sorted(wanted - there):
            self.eks.associate_access_policy(
                clusterName=cluster, principalArn=principal, policyArn=policy, accessScope={"type": "cluster"}
            )
        for policy in sorted(there - wanted):
            self.eks.disassociate_access_policy(clusterName=cluster, principalArn=principal, policyArn=policy)

    def remove(self, observed: Observed) -> None:
        """Delete the entry."""
        cluster, principal = eks.split(observed.identity)
        self.eks.delete_access_entry(clusterName=cluster, principalArn=principal)
