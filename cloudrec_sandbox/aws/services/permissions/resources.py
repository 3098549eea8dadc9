"""The resources that a call names: their ARNs, and their tags as condition keys."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cloudrec_sandbox.aws.services.ec2.placement import Groups
from cloudrec_sandbox.aws.services.fsx.store import store
from cloudrec_sandbox.aws.services.iam import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.services.permissions.policies import Facts

_KEY_ID_BYTES = 36  # at the beginning of moto's ciphertexts
# The prefixes of EC2's ids, with the resource types that they are for.
_TYPES = {
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "i": "instance",
    "igw": "internet-gateway",
    "lt": "launch-template",
    "nat": "natgateway",
    "rtb": "route-table",
    "sg": "security-group",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
}


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource that a call names; it need not exist."""

    arn: str
    facts: Facts = field(default_factory=dict)


def arn(call: Call, service: str, rest: str) -> str:
    """Return an ARN in the call's region and account."""
    return f"arn:aws:{service}:{call.region}:{call.account}:{rest}"


def _tags(tags: Mapping[str, Any]) -> Facts:
    return {f"aws:resourcetag/{key.lower()}": [str(value)] for key, value in tags.items()}


def ec2_arn(call: Call, kind: str, name: str) -> str:
    """Return the ARN of an EC2 resource."""
    return arn(call, "ec2", f"{kind}/{name}")


def ec2_named(call: Call, only: Sequence[str] | None) -> Iterator[Resource]:
    """Yield the EC2 resources that the request names, in the parameters `only` if given."""
    wish = call.params
    given = [wish[name] for name in (only if only is not None else wish) if name in wish]
    names = [name for value in given for name in (value if isinstance(value, list) else [value])]
    for name in (name for name in names if isinstance(name, str)):
        if name.partition("-")[0] in (*_TYPES, "rtbassoc") and "-" in name:
            yield ec2_resource(call, name)
    if call.action == "DeletePlacementGroup":
        group = call.world.state(Groups, call.region).rows.get(wish["GroupName"], {})
        tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", [])}
        yield Resource(arn=ec2_arn(call, "placement-group", wish["GroupName"]), facts=_tags(tags))


def ec2_resource(call: Call, name: str) -> Resource:
    """Return an EC2 resource by its id; for an association its route table, as associations have no tags."""
    ec2 = call.backend("ec2")
    tables = {each: table.id for table in ec2.route_tables.values() for each in table.all_associations_ids}
    name = tables.get(name, name)
    kind = _TYPES.get(name.partition("-")[0], "*")
    return Resource(arn=ec2_arn(call, kind, name), facts=_tags(ec2.tags.get(name, {})))


def _role(call: Call, name: str) -> Any | None:  # noqa: ANN401 - moto's role
    roles = call.world.backend("iam", GLOBAL).roles.values()
    return next((role for role in roles if role.name == name), None)


def role_arn(call: Call, name: str) -> str:
    """Return the role's ARN with its path; an unknown role has the path of the request, or none."""
    if name.startswith("arn:"):
        return name
    if (role := _role(call, name)) is not None:
        return str(role.arn)
    path = call.params.get("Path", "/") if call.action == "CreateRole" else "/"
    return f"arn:aws:iam::{call.account}:role{path}{name}"


def has_role(call: Call, name: str) -> bool:
    """Return whether the account has a role of this name."""
    return _role(call, name) is not None


def role_facts(call: Call, name: str) -> Facts:
    """Return the role's tags."""
    role = _role(call, name)
    return {} if role is None else _tags({tag["Key"]: tag["Value"] for tag in role.tags})


def boundary_of(call: Call, name: str) -> str:
    """Return the ARN of the role's permissions boundary; empty if it has none."""
    role = _role(call, name)
    return "" if role is None else str(role.permissions_boundary_arn or "")


def profile_arn(call: Call, name: str) -> str:
    """Return the ARN of an instance profile."""
    for profile in call.world.backend("iam", GLOBAL).instance_profiles.values():
        if profile.name == name:
            return str(profile.arn)
    return f"arn:aws:iam::{call.account}:instance-profile/{name}"


def role_in(call: Call, profile: str) -> str:
    """Return the ARN of the role in an instance profile, given by its name or ARN; empty without one."""
    profiles = call.world.backend("iam", GLOBAL).instance_profiles.values()
    found = [each.roles for each in profiles if profile in (each.name, str(each.arn))]
    return str(found[0][0].arn) if found and found[0] else ""


def iam_arn(call: Call) -> str:
    """Return the resource of an IAM request that names no role."""
    wish = call.params
    if wish.get("PolicyArn"):
        return str(wish["PolicyArn"])
    for key, kind in (
        ("InstanceProfileName", "instance-profile"),
        ("UserName", "user"),
        ("PolicyName", "policy"),
    ):
        if wish.get(key):
            return f"arn:aws:iam::{call.account}:{kind}{wish.get('Path', '/')}{wish[key]}"
    return ""


def key_arn(call: Call, name: str, *, kind: str = "key/") -> str:
    """Return the ARN of a key, or with an empty `kind` of an alias."""
    return arn(call, "kms", f"{kind}{name}")


def key_of(ciphertext: object) -> str | None:
    """Return the id of the key with which a text was encrypted; None if it is none of KMS's."""
    if not isinstance(ciphertext, str | bytes):
        return None
    try:
        raw = base64.b64decode(ciphertext, validate=True) if isinstance(ciphertext, str) else ciphertext
        return str(UUID(raw[:_KEY_ID_BYTES].decode("ascii")))
    except ValueError:
        return None


def key(call: Call, name: str) -> Resource:
    """Return a key by its id, ARN or alias; any key if the alias is unknown."""
    kms = call.backend("kms")
    aliased = "*" if "alias/" in name and not kms.alias_exists(kms.get_alias_name(name)) else name
    id_ = kms.any_id_to_key_id(aliased)
    found = kms.keys.get(id_)
    if found is None:
        return Resource(arn=key_arn(call, id_))
    facts = _tags(kms.tagger.get_tag_dict_for_resource(id_))
    aliases = {"kms:resourcealiases": sorted(found.aliases)} if found.aliases else {}
    return Resource(arn=key_arn(call, id_), facts={**facts, **aliases})


def key_of_bucket(call: Call, name: str) -> str | None:
    """Return the key that encrypts a bucket's objects; None without one."""
    bucket = call.world.backend("s3", "aws").buckets.get(name)
    rule = (bucket.encryption or {}).get("Rule", {}) if bucket is not None else {}
    key: str | None = rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
    return key


def of_fsx(call: Call) -> Iterator[Resource]:
    """Yield the file systems and associations that the request names."""
    kept = store(call)
    for parameter, kind, made in (
        ("FileSystemId", "file-system", kept.file_systems),
        ("AssociationId", "association", kept.associations),
    ):
        if name := call.params.get(parameter):
            row = made[name].row if name in made else {}
            tags = {tag["Key"]: tag["Value"] for tag in row.get("Tags", [])}
            yield Resource(arn=arn(call, "fsx", f"{kind}/{name}"), facts=_tags(tags))


def eks_arn(call: Call) -> str:
    """Return the ARN of the request's cluster or node group; "*" if it has none."""
    wish = call.params
    cluster = wish.get("clusterName") or (wish.get("name") if "Cluster" in call.action else None)
    if not cluster:
        return "*"
    if wish.get("nodegroupName") and not call.action.startswith("Create"):
        return arn(call, "eks", f"nodegroup/{cluster}/{wish['nodegroupName']}/*")
    return arn(call, "eks", f"cluster/{cluster}")


def of_balancers(call: Call) -> Iterator[Resource]:
    """Yield the load balancers and target groups that the request names."""
    wish = call.params
    for parameter in ("LoadBalancerArn", "TargetGroupArn"):
        if name := wish.get(parameter):
            tags = call.backend("elbv2").tagging_service.get_tag_dict_for_resource(name)
            yield Resource(arn=name, facts=_tags(tags))
    if name := wish.get("LoadBalancerName"):
        found = call.backend("elb").load_balancers.get(name)
        tags = found.tags if found is not None else {}
        yield Resource(arn=arn(call, "elasticloadbalancing", f"loadbalancer/{name}"), facts=_tags(tags))
