"""IAM roles with the least permissions, under the cluster's own IAM path."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, Difference, Observed, Properties
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import AwsDriver, as_list, as_map
from cloudrec.providers.aws.identity.policies import (
    END,
    SCHEDULER,
    cni_policy,
    end_policy,
    guard_policy,
    metrics_policy,
    pod_policy,
)
from cloudrec.providers.aws.layout import TAG_REGION
from cloudrec.providers.base.driver import is_ours, name_of
from cloudrec.providers.base.layout import guard_account_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_iam import IAMClient
    from types_boto3_iam.type_defs import AttachedPolicyTypeDef, CreateRoleRequestTypeDef, RoleTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

ROLE = "role"
GUARD = "guard"  # the suffix of the guard's role
CNI_ACCOUNT = "kube-system/aws-node"  # namespace/name, created by the add-on
METRICS_ACCOUNT = "amazon-cloudwatch/cloudwatch-agent"  # namespace/name, created by the add-on
METRICS = "metrics"  # the suffix of the role of CloudWatch's agent
LUSTRE_CSI_ACCOUNT = "kube-system/fsx-csi-controller-sa"  # namespace/name, created by the add-on
KINDS: Mapping[str, AbstractSet[str]] = {ROLE: frozenset()}

_INLINE = "cloudrec"  # name of the inline policy of a role
_BOUNDARY = "cloudrec-boundary"  # the policy that is the boundary of every role, if the account has it
_ROOT = "/cloudrec/"  # the IAM path that contains the paths of all clusters
_EKS, _EC2, _PODS = "eks.amazonaws.com", "ec2.amazonaws.com", "pods.eks.amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class AwsRoleProperties(Properties):
    """The requested properties of an IAM role.

    Attributes:
        role: its name.
        path: the IAM path that it is under.
        trust: its trust policy: who may assume it.
        managed: ARNs of the managed policies that are attached to it, sorted.
        inline: its inline policy; empty for none.
        boundary: the ARN of its permissions boundary; empty for the account's `cloudrec-boundary`, if there
            is one.
    """

    role: str
    path: str
    trust: Mapping[str, object]
    managed: tuple[str, ...]
    inline: Mapping[str, object]
    boundary: str


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the roles of control plane, nodes, network plugin, runs, guard, end and Lustre's driver."""
    node = ["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"]
    roles: list[Resource] = [
        _role(layout, "cluster", _EKS, managed=["AmazonEKSClusterPolicy"]),
        _role(layout, "node", _EC2, managed=node),
        # The network plugin changes interfaces: its own role, so that the nodes' role cannot.
        _role(layout, "cni", _PODS, account=CNI_ACCOUNT, inline=cni_policy(layout)),
        _role(layout, "pod", _PODS, account=layout.settings.service_account, inline=pod_policy(layout)),
        _role(layout, GUARD, _PODS, account=guard_account(layout), inline=guard_policy(layout)),
    ]
    if layout.settings.lustre_gib:
        # cloudrec creates the file system, not the CSI driver, so that the driver needs only to read.
        managed = ["AmazonFSxReadOnlyAccess"]
        roles.append(_role(layout, "lustre-csi", _PODS, account=LUSTRE_CSI_ACCOUNT, managed=managed))
    if layout.has_managed_metrics:
        roles.append(_role(layout, METRICS, _PODS, account=METRICS_ACCOUNT, inline=metrics_policy(layout)))
    if layout.cluster.expires:
        roles.append(_role(layout, END, SCHEDULER, inline=end_policy(layout)))
    return roles


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {ROLE: AwsRoleDriver(aws)}


def _role(
    layout: AwsLayout,
    suffix: str,
    service: str,
    *,
    account: str = "",
    managed: Sequence[str] = (),
    inline: Mapping[str, object] | None = None,
) -> Resource[AwsRoleProperties]:
    return layout.resource(
        ROLE,
        suffix,
        properties=AwsRoleProperties(
            role=layout.role(suffix),
            path=layout.role_path,
            trust=_trust(layout, service, account),
            managed=tuple(sorted(f"arn:{layout.partition}:iam::aws:policy/{name}" for name in managed)),
            inline=inline or {},
            boundary=layout.settings.permissions_boundary or "",
        ),
        tags={TAG_REGION: layout.region},
        hourly_usd=FREE,
    )


def _trust(layout: AwsLayout, service: str, account: str) -> Mapping[str, object]:
    """Return the trust policy: a service, the cluster's schedules, or the pods of one service account."""
    statement: dict[str, object] = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    if service == _PODS:
        namespace, _, name = account.partition("/")
        # Pod identity tags its sessions, and the tags name cluster and service account.
        statement["Action"] = ["sts:AssumeRole", "sts:TagSession"]
        statement["Condition"] = {
            "StringEquals": {
                "aws:RequestTag/eks-cluster-name": layout.name,
                "aws:RequestTag/kubernetes-namespace": namespace,
                "aws:RequestTag/kubernetes-service-account": name,
            }
        }
    if service == SCHEDULER:
        # Without the condition, schedules of others could use the role (confused deputy).
        group = (
            f"arn:{layout.partition}:scheduler:{layout.region}:{layout.account}:schedule-group/{layout.name}"
        )
        statement["Condition"] = {
            "StringEquals": {"aws:SourceAccount": layout.account, "aws:SourceArn": group}
        }
    return {"Version": "2012-10-17", "Statement": [statement]}


def guard_account(layout: AwsLayout) -> str:
    """Return the guard's service account as namespace/name."""
    return guard_account_of(layout.settings.service_account)


class AwsRoleDriver(AwsDriver[AwsRoleProperties]):
    """Handles roles with their policies. The identity is the role's ARN."""

    kind = ROLE
    changeable = frozenset({"trust", "managed", "inline", "boundary"})
    poll_s = 1.0

    def __init__(self, aws: Aws) -> None:
        super().__init__(aws)
        self._default_boundary: str | None = None

    @property
    def iam(self) -> IAMClient:
        """IAM's client."""
        return self.aws.iam

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the roles under the cluster's path, and keep those of this region's clusters."""
        path = _ROOT if cluster is None else f"{_ROOT}{cluster}/"
        found = []
        pages = self.iam.get_paginator("list_roles").paginate
        for row in self.aws.rows(pages, lambda page: page.get("Roles"), PathPrefix=path):
            # IAM lists roles without their tags: a call for each reads them.
            seen = self._observe(row["RoleName"])
            if seen is None or not is_ours(seen.tags, cluster):
                continue
            if seen.tags.get(TAG_REGION, self.aws.region) == self.aws.region:
                found.append(seen)
        return found

    def find(self, resource: Resource[AwsRoleProperties]) -> Observed | None:
        """Find the role by its name, with its policies."""
        name = resource.properties.role
        seen = self._observe(name)
        if seen is None:
            return None
        policies = {
            "managed": tuple(sorted(each["PolicyArn"] for each in self._attached(name))),
            "inline": self._inline(name),
        }
        return replace(seen, properties={**seen.properties, **policies})

    def difference(self, resource: Resource[AwsRoleProperties], observed: Observed) -> Difference | None:
        """Return the names of the policies that differ; their texts are too long to show."""
        wanted: Mapping[str, object] = {
            **resource.properties.requested(),
            "boundary": self._boundary(resource),
        }
        there: Mapping[str, object] = observed.properties
        # If no boundary is requested, one that the account's administrators have set stays.
        compared = self.changeable - (frozenset() if wanted["boundary"] else {"boundary"})
        wrong = [name for name in sorted(compared) if wanted[name] != there[name]]
        return Difference(reason=f"{', '.join(wrong)} differ", in_place=True) if wrong else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; IAM's error if the role does not exist."""
        self.aws.read(self.iam.get_role, RoleName=_name(identity))
        return Condition.READY, ""

    def make(
        self, resource: Resource[AwsRoleProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the role; IAM has no idempotency token, but refuses a second role of the name."""
        del token, identities
        asked = resource.properties
        wanted: CreateRoleRequestTypeDef = {
            "RoleName": asked.role,
            "Path": asked.path,
            "AssumeRolePolicyDocument": json.dumps(asked.trust),
            "Description": f"cloudrec: {resource.name}",
            "Tags": as_list(resource.tags),
        }
        if boundary := self._boundary(resource):
            wanted["PermissionsBoundary"] = boundary
        return self.iam.create_role(**wanted)["Role"]["Arn"]

    def change(
        self, resource: Resource[AwsRoleProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Write what `complete` writes, and the trust policy if it differs."""
        super().change(resource, observed, identities=identities)
        trust = resource.properties.trust
        if observed.properties["trust"] != trust:
            self.iam.update_assume_role_policy(
                RoleName=_name(observed.identity), PolicyDocument=json.dumps(trust)
            )

    def complete(
        self, resource: Resource[AwsRoleProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Set the boundary, then attach the requested policies and detach all others.

        The boundary comes first: the deployer's policies allow policies only on roles that have it.
        """
        del identities
        name, wanted = _name(identity), resource.properties
        if boundary := self._boundary(resource):
            self.iam.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=boundary)
        for policy in wanted.managed:
            self.iam.attach_role_policy(RoleName=name, PolicyArn=policy)
        if wanted.inline:
            document = json.dumps(wanted.inline)
            self.iam.put_role_policy(RoleName=name, PolicyName=_INLINE, PolicyDocument=document)
        self._strip(name, keep=wanted.managed, keep_inline=bool(wanted.inline))

    def remove(self, observed: Observed) -> None:
        """Delete the role; IAM requires that it has no policies and is in no instance profile."""
        name = _name(observed.identity)
        pages = self.iam.get_paginator("list_instance_profiles_for_role").paginate
        for profile in self.aws.rows(pages, lambda page: page.get("InstanceProfiles"), RoleName=name):
            self.iam.remove_role_from_instance_profile(
                InstanceProfileName=profile["InstanceProfileName"], RoleName=name
            )
        self._strip(name)
        self.iam.delete_role(RoleName=name)

    def _boundary(self, resource: Resource[AwsRoleProperties]) -> str:
        """Return the ARN of the role's permissions boundary; empty for none.

        It is the policy that the settings name, else the account's `cloudrec-boundary` if that exists. The
        deployer's policies in infra/aws require a boundary; an administrator can create roles without one.
        """
        if resource.properties.boundary:
            return resource.properties.boundary
        if self._default_boundary is None:
            self._default_boundary = self._shipped_boundary()
        return self._default_boundary

    def _shipped_boundary(self) -> str:
        arn = f"arn:{self.aws.partition}:iam::{self.aws.account}:policy/{_BOUNDARY}"
        try:
            self.aws.read(self.iam.get_policy, PolicyArn=arn)
        except ClientError as error:
            if not errors.is_absent(error):
                raise  # without this permission it is not known whether the account has the boundary
            return ""
        return arn

    def _strip(self, name: str, *, keep: Sequence[str] = (), keep_inline: bool = False) -> None:
        """Detach managed policies that are not in `keep`, and delete inline policies unless `keep_inline`."""
        for each in self._attached(name):
            if each["PolicyArn"] not in keep:
                self.iam.detach_role_policy(RoleName=name, PolicyArn=each["PolicyArn"])
        for policy in self._own(name):
            if policy != _INLINE or not keep_inline:
                self.iam.delete_role_policy(RoleName=name, PolicyName=policy)

    def _attached(self, name: str) -> list[AttachedPolicyTypeDef]:
        pages = self.iam.get_paginator("list_attached_role_policies").paginate
        return self.aws.rows(pages, lambda page: page.get("AttachedPolicies"), RoleName=name)

    def _own(self, name: str) -> list[str]:
        """Return the names of the role's inline policies."""
        pages = self.iam.get_paginator("list_role_policies").paginate
        return self.aws.rows(pages, lambda page: page.get("PolicyNames"), RoleName=name)

    def _observe(self, name: str) -> Observed | None:
        try:
            row = self.aws.read(self.iam.get_role, RoleName=name)["Role"]
        except ClientError as error:
            if errors.is_absent(error):
                return None
            raise
        tags = as_map(row.get("Tags"))
        return Observed(
            kind=ROLE,
            name=name_of(tags, row["RoleName"]),
            identity=row["Arn"],
            condition=Condition.READY,
            properties={"trust": row["AssumeRolePolicyDocument"], "boundary": _boundary_of(row)},
            tags=tags,
            location=self.aws.region,
            created=row["CreateDate"].timestamp(),
            hourly_usd=FREE,
        )

    def _inline(self, name: str) -> Mapping[str, object]:
        """Return the inline policy; if there are other ones, a value unlike any requested policy."""
        policies = self._own(name)
        if not policies:
            return {}
        if policies != [_INLINE]:
            return {"others": policies}
        answer = self.aws.read(self.iam.get_role_policy, RoleName=name, PolicyName=_INLINE)
        return cast("Mapping[str, object]", answer["PolicyDocument"])  # boto3 has parsed the JSON


def _boundary_of(row: RoleTypeDef) -> str:
    return row.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", "")


def _name(arn: str) -> str:
    return arn.rpartition("/")[2]
