"""The cluster's administrators beside its creator: an access entry for each principal in the settings."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, Properties
from cloudrec.errors import SpecError
from cloudrec.findings import Finding
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api import eks
from cloudrec.providers.aws.cluster.cluster import CLUSTER
from cloudrec.providers.base.driver import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_eks.type_defs import AccessEntryTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.api.driver import AwsDriver
    from cloudrec.providers.aws.layout import AwsLayout

ENTRY = "access-entry"
KINDS: Mapping[str, AbstractSet[str]] = {ENTRY: frozenset({CLUSTER})}
_PRINCIPAL = re.compile(
    r"arn:aws[a-z-]*:(iam|sts)::(?P<account>\d{12})"
    r":(?:role/(?P<role>.+)|user/.+|assumed-role/(?P<session_of>[^/]+)/.+)"
)
_POLICY = "arn:{partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe an access entry for each principal of the settings."""
    policy = _POLICY.format(partition=layout.partition)
    return [
        layout.resource(
            ENTRY,
            hashlib.sha256(principal.encode()).hexdigest()[:8],
            needs=(layout.key(CLUSTER),),
            properties=AccessEntryProperties(principal=principal, policies=[policy]),
            hourly_usd=FREE,
        )
        for principal in layout.settings.admins
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver."""
    return {ENTRY: AccessEntryDriver(aws)}


def principals(aws: Aws, named: Sequence[str]) -> tuple[str, ...]:
    """Return the ARNs of the roles and users that the setting `admins` names.

    An access entry is for a role, not for a session of it, which `aws sts get-caller-identity` shows.

    Raises:
        SpecError: a value is no ARN of a role or user, or this account has no such role.
    """
    return tuple(dict.fromkeys(_principal(aws, name) for name in named))


def _principal(aws: Aws, name: str) -> str:
    match = _PRINCIPAL.fullmatch(name)
    if match is None:
        raise SpecError(
            f"cluster.settings.admins has {name!r}, which is not the ARN of a role or user",
            remedy="give arn:aws:iam::ACCOUNT:role/NAME or arn:aws:iam::ACCOUNT:user/NAME",
        )
    if match["session_of"] is None:
        return name
    if match["account"] != aws.account:
        raise SpecError(
            f"cluster.settings.admins has {name!r}, a session of another account's role",
            remedy="give the role's own ARN, arn:aws:iam::ACCOUNT:role/NAME",
        )
    found = _role(aws, match["session_of"])  # the ARN of a session lacks the role's path
    if found is None:
        raise SpecError(
            f"cluster.settings.admins has {name!r}, but the account has no role {match['session_of']!r}",
            remedy="name an existing role or user",
        )
    return found


def finding(aws: Aws, layout: AwsLayout) -> list[Finding]:
    """Check that this account has the named roles: EKS refuses others, once the cluster is made."""
    missing = []
    for name in layout.settings.admins:
        match = _PRINCIPAL.fullmatch(name)
        role = match["role"] if match and match["account"] == aws.account else None
        if role and _role(aws, role.rpartition("/")[2]) != name:
            missing.append(name)
    if not layout.settings.admins:
        return []
    return [
        Finding(
            check="administrators",
            ok=not missing,
            found=f"{', '.join(missing)}: no such role" if missing else ", ".join(layout.settings.admins),
            remedy="correct the ARNs, with the roles' paths (--set cluster.settings.admins=...)",
        )
    ]


def _role(aws: Aws, name: str) -> str | None:
    """Return the ARN of this account's role; None if there is none."""
    try:
        return aws.read(aws.iam.get_role, RoleName=name)["Role"]["Arn"]
    except ClientError as error:
        if errors.is_absent(error):
            return None
        raise


@dataclass(frozen=True, kw_only=True)
class AccessEntry:
    """An access entry and the ARNs of its policies, sorted."""

    row: AccessEntryTypeDef
    policies: list[str]


@dataclass(frozen=True, kw_only=True)
class AccessEntryProperties(Properties):
    """The requested properties of an access entry.

    Attributes:
        principal: the ARN of the role or user.
        policies: ARNs of its access policies, sorted.
    """

    principal: str
    policies: list[str]


class AccessEntryDriver(eks.PartDriver[AccessEntry, AccessEntryProperties]):
    """Handles access entries. The name within the identity is the principal's ARN.

    EKS makes an entry for the cluster's creator, which has no tags: if the settings name the creator, it
    serves, and it is neither changed nor deleted.
    """

    kind = ENTRY
    charge = FREE
    changeable = frozenset({"policies"})

    def parts(self, cluster: str) -> Sequence[str]:
        """Return the principals of all entries; `search` drops those without tags, which EKS created."""
        pages = self.eks.get_paginator("list_access_entries").paginate
        return self.aws.rows(pages, lambda page: page.get("accessEntries"), clusterName=cluster)

    def described(self, cluster: str, name: str) -> AccessEntry:
        """Return the entry and its policies; EKS's error if it does not exist."""
        answer = self.aws.read(self.eks.describe_access_entry, clusterName=cluster, principalArn=name)
        policies = self.aws.rows(
            self.eks.get_paginator("list_associated_access_policies").paginate,
            lambda page: page.get("associatedAccessPolicies"),
            clusterName=cluster,
            principalArn=name,
        )
        return AccessEntry(
            row=answer["accessEntry"], policies=sorted(policy["policyArn"] for policy in policies)
        )

    def facts(self, row: AccessEntry) -> eks.EksFacts:
        """Return tags and creation time; an access entry has no status."""
        return eks.EksFacts(tags=row.row.get("tags"), created=row.row.get("createdAt"))

    def __init__(self, aws: Aws) -> None:
        super().__init__(aws)
        self._left = set[str]()  # identities of creators' entries, which `remove` leaves

    def find(self, resource: Resource[AccessEntryProperties]) -> Observed | None:
        """Find the entry by its principal; the creator's own entry counts as the resource."""
        cluster = f"{eks.PREFIX}{resource.tags[TAG_CLUSTER]}"
        seen = self.seen(cluster, resource.properties.principal)
        if seen is None or not _is_creators(seen, resource):
            return seen
        return replace(seen, name=resource.name, tags=resource.tags)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return the entry's condition; GONE for a creator's entry that `remove` has left."""
        return (Condition.GONE, "") if identity in self._left else super().look(identity)

    def properties(self, row: AccessEntry) -> Mapping[str, object]:
        """Return principal and policies."""
        return {"principal": row.row["principalArn"], "policies": row.policies}

    def make(
        self, resource: Resource[AccessEntryProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the entry; `complete` adds its policies."""
        cluster, principal = needed(resource, identities, CLUSTER), resource.properties.principal
        try:
            self.eks.create_access_entry(
                clusterName=cluster,
                principalArn=principal,
                type="STANDARD",
                clientRequestToken=token,
                tags=dict(resource.tags),
            )
        except ClientError as error:
            # A principal has one entry for a cluster; an entry that cloudrec did not create is left alone.
            if not eks.is_taken(error):
                raise
            seen = self.seen(cluster, principal)
            if not self.adopted(resource, cluster, principal) and not (seen and _is_creators(seen, resource)):
                raise
        return f"{cluster}/{principal}"

    def complete(
        self, resource: Resource[AccessEntryProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Associate the missing policies, and disassociate all others."""
        del identities
        cluster, principal = eks.split(identity)
        wanted = set(resource.properties.policies)
        entry = self.described(cluster, principal)
        there = set(entry.policies)
        if not entry.row.get("tags"):
            return
        for policy in sorted(wanted - there):
            self.eks.associate_access_policy(
                clusterName=cluster, principalArn=principal, policyArn=policy, accessScope={"type": "cluster"}
            )
        for policy in sorted(there - wanted):
            self.eks.disassociate_access_policy(clusterName=cluster, principalArn=principal, policyArn=policy)

    def remove(self, observed: Observed) -> None:
        """Delete the entry; the creator's own one stays as long as the cluster."""
        cluster, principal = eks.split(observed.identity)
        if not self.described(cluster, principal).row.get("tags"):
            self._left.add(observed.identity)
            return
        self.eks.delete_access_entry(clusterName=cluster, principalArn=principal)


def _is_creators(seen: Observed, resource: Resource[AccessEntryProperties]) -> bool:
    """Return whether an entry without tags, which EKS has made, has the requested policies."""
    there = seen.properties["policies"]
    return not seen.tags and isinstance(there, list) and set(resource.properties.policies) <= set(there)
