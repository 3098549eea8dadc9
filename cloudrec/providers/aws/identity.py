"""IAM roles, each with no more than its work needs, under a path of the cluster's own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.cloud.guard import account_of
from cloudrec.engine.graph import Condition, Difference, Observed
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.driver import AwsDriver, as_list, as_map
from cloudrec.providers.aws.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

ROLE = "role"
GUARD = "guard"  # the suffix of its role
GPU_GROUPS = "gpu-"  # what the names of GPU node groups begin with
LUSTRE_CSI_ACCOUNT = "kube-system/fsx-csi-controller-sa"  # namespace/name, as the add-on makes it
KINDS: Mapping[str, AbstractSet[str]] = {ROLE: frozenset()}

_INLINE = "cloudrec"  # the name of a role's own policy
_ROOT = "/cloudrec/"  # IAM path above all clusters'
_EKS, _EC2, _PODS = "eks.amazonaws.com", "ec2.amazonaws.com", "pods.eks.amazonaws.com"


def resources(layout: Layout) -> list[Resource]:
    """Describe the roles of the control plane, of nodes, of runs, of the guard, and of Lustre's driver."""
    node = ["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy"]
    roles = [
        _role(layout, "cluster", _EKS, managed=["AmazonEKSClusterPolicy"]),
        _role(layout, "node", _EC2, managed=node),
        _role(layout, "pod", _PODS, account=layout.settings.service_account, inline=_pod_policy(layout)),
        _role(layout, GUARD, _PODS, account=guard_account(layout), inline=_guard_policy(layout)),
    ]
    if layout.settings.lustre_gib:
        # The file system is there before its driver, which makes none and so needs no more than to see it.
        managed = ["AmazonFSxReadOnlyAccess"]
        roles.append(_role(layout, "lustre-csi", _PODS, account=LUSTRE_CSI_ACCOUNT, managed=managed))
    return roles


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {ROLE: RoleDriver(aws)}


def _role(
    layout: Layout,
    suffix: str,
    service: str,
    *,
    account: str = "",
    managed: Sequence[str] = (),
    inline: Mapping[str, Any] | None = None,
) -> Resource:
    return layout.resource(
        ROLE,
        suffix,
        properties={
            "role": layout.role(suffix),
            "path": layout.role_path,
            "trust": _trust(layout, service, account),
            "managed": tuple(sorted(f"arn:{layout.partition}:iam::aws:policy/{name}" for name in managed)),
            "inline": inline or {},
        },
        tags={TAG_REGION: layout.region},
    )


def _trust(layout: Layout, service: str, account: str) -> Mapping[str, Any]:
    """Say who may take the role on: a service; of pods, those of one service account of this cluster."""
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    if service == _PODS:
        namespace, _, name = account.partition("/")
        statement["Action"] = ["sts:AssumeRole", "sts:TagSession"]
        statement["Condition"] = {
            "StringEquals": {
                "aws:RequestTag/eks-cluster-name": layout.name,
                "aws:RequestTag/kubernetes-namespace": namespace,
                "aws:RequestTag/kubernetes-service-account": name,
            }
        }
    return {"Version": "2012-10-17", "Statement": [statement]}


def guard_account(layout: Layout) -> str:
    """Return the guard's service account, NAMESPACE/NAME."""
    return account_of(layout.settings.service_account)


def _guard_policy(layout: Layout) -> Mapping[str, Any]:
    """Let the guard scale the cluster's GPU node groups, and see how large they are."""
    front = f"arn:{layout.partition}:eks:{layout.region}:{layout.account}"
    look = {
        "Sid": "Look",
        "Effect": "Allow",
        "Action": "eks:ListNodegroups",
        "Resource": f"{front}:cluster/{layout.name}",
    }
    scale = {
        "Sid": "Scale",
        "Effect": "Allow",
        "Action": ["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"],
        "Resource": f"{front}:nodegroup/{layout.name}/{GPU_GROUPS}*/*",
    }
    return {"Version": "2012-10-17", "Statement": [look, scale]}


def _pod_policy(layout: Layout) -> Mapping[str, Any]:
    """Let runs read and write the cluster's part of its bucket, with its key, and nothing else."""
    bucket = f"arn:{layout.partition}:s3:::{layout.bucket}"
    prefix = layout.settings.prefix
    under = f"{prefix}/*" if prefix else "*"
    listing: dict[str, Any] = {
        "Sid": "List",
        "Effect": "Allow",
        "Action": ["s3:ListBucket", "s3:ListBucketMultipartUploads"],
        "Resource": bucket,
    }
    if prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": [prefix, under]}}
    objects = {
        "Sid": "Objects",
        "Effect": "Allow",
        "Action": [
            "s3:GetObject",
            "s3:PutObject",
            "s3:DeleteObject",
            "s3:AbortMultipartUpload",
            "s3:ListMultipartUploadParts",
        ],
        "Resource": f"{bucket}/{under}",
    }
    return {"Version": "2012-10-17", "Statement": [listing, objects, _use_of_key(layout)]}


def _use_of_key(layout: Layout) -> Mapping[str, Any]:
    """Let runs use the key, which is known by its alias before it exists, and only through S3."""
    statement = {"Sid": "Key", "Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"]}
    through: dict[str, Any] = {"StringEquals": {"kms:ViaService": f"s3.{layout.region}.amazonaws.com"}}
    if layout.settings.kms_key:
        return {**statement, "Resource": layout.settings.kms_key, "Condition": through}
    through["ForAnyValue:StringEquals"] = {"kms:ResourceAliases": layout.key_alias}
    every = f"arn:{layout.partition}:kms:{layout.region}:{layout.account}:key/*"
    return {**statement, "Resource": every, "Condition": through}


class RoleDriver(AwsDriver):
    """Handles roles with their policies. A role's identity is its ARN."""

    kind = ROLE
    changeable = frozenset({"trust", "managed", "inline"})
    poll_s = 1.0

    @property
    def iam(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """IAM's client."""
        return self.aws.client("iam")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List under the clusters' path, and keep what was made for this region."""
        path = _ROOT if cluster is None else f"{_ROOT}{cluster}/"
        found = []
        for row in self.aws.read("iam", "list_roles", "Roles", PathPrefix=path):
            seen = self._observe(row["RoleName"])
            if seen is None or not is_ours(seen.tags, cluster):
                continue
            if seen.tags.get(TAG_REGION, self.aws.region) == self.aws.region:
                found.append(seen)
        return found

    def find(self, resource: Resource) -> Observed | None:
        """Look it up by its name, with its policies."""
        seen = self._observe(resource.properties["role"])
        if seen is None:
            return None
        name = resource.properties["role"]
        attached = self.aws.read("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=name)
        policies = {
            "managed": tuple(sorted(each["PolicyArn"] for each in attached)),
            "inline": self._inline(name),
        }
        return replace(seen, properties={**seen.properties, **policies})

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Tell which policies differ, by name: their text would tell nobody anything."""
        wanted, there = resource.properties, observed.properties
        wrong = [what for what in sorted(self.changeable) if wanted[what] != there[what]]
        return Difference(reason=f"{', '.join(wrong)} differ", in_place=True) if wrong else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.aws.read("iam", "get_role", RoleName=_name(identity))
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the role; IAM has no token for it, but refuses a second one of its name."""
        del token, identities
        answer = self.iam.create_role(
            RoleName=resource.properties["role"],
            Path=resource.properties["path"],
            AssumeRolePolicyDocument=json.dumps(resource.properties["trust"]),
            Description=f"cloudrec: {resource.name}",
            Tags=as_list(resource.tags),
        )
        return str(answer["Role"]["Arn"])

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Give it its policies and no others."""
        del identities
        name, wanted = _name(identity), resource.properties
        self.iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(wanted["trust"]))
        for policy in wanted["managed"]:
            self.iam.attach_role_policy(RoleName=name, PolicyArn=policy)
        if wanted["inline"]:
            document = json.dumps(wanted["inline"])
            self.iam.put_role_policy(RoleName=name, PolicyName=_INLINE, PolicyDocument=document)
        self._strip(name, keep=wanted["managed"], keep_inline=bool(wanted["inline"]))

    def remove(self, observed: Observed) -> None:
        """Delete the role, which must bear no policy and be in no instance profile."""
        name = _name(observed.identity)
        profiles = self.aws.read("iam", "list_instance_profiles_for_role", "InstanceProfiles", RoleName=name)
        for profile in profiles:
            self.iam.remove_role_from_instance_profile(
                InstanceProfileName=profile["InstanceProfileName"], RoleName=name
            )
        self._strip(name)
        self.iam.delete_role(RoleName=name)

    def _strip(self, name: str, *, keep: Sequence[str] = (), keep_inline: bool = False) -> None:
        """Take away what policies it has beside these."""
        for each in self.aws.read("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=name):
            if each["PolicyArn"] not in keep:
                self.iam.detach_role_policy(RoleName=name, PolicyArn=each["PolicyArn"])
        for policy in self.aws.read("iam", "list_role_policies", "PolicyNames", RoleName=name):
            if policy != _INLINE or not keep_inline:
                self.iam.delete_role_policy(RoleName=name, PolicyName=policy)

    def _observe(self, name: str) -> Observed | None:
        try:
            row = self.aws.read("iam", "get_role", RoleName=name)["Role"]
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
            properties={"trust": row["AssumeRolePolicyDocument"]},
            tags=tags,
            location=self.aws.region,
            created=row["CreateDate"].timestamp(),
        )

    def _inline(self, name: str) -> Mapping[str, Any]:
        """Return the role's own policy; where it has others, what no role of ours has."""
        policies = self.aws.read("iam", "list_role_policies", "PolicyNames", RoleName=name)
        if not policies:
            return {}
        if policies != [_INLINE]:
            return {"others": policies}
        answer = self.aws.read("iam", "get_role_policy", RoleName=name, PolicyName=_INLINE)
        document: Mapping[str, Any] = answer["PolicyDocument"]
        return document


def _name(arn: str) -> str:
    return arn.rpartition("/")[2]
