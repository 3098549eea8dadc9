"""Checks every call of somebody who is not root."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.aws.errors import AwsError
from cloudrec.sandbox.aws.registry import operation, setting
from cloudrec.sandbox.aws.services.ec2.placement import Groups
from cloudrec.sandbox.aws.services.iam import GLOBAL
from cloudrec.sandbox.aws.services.permissions.policies import Wish, allows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.aws.call import Call
    from cloudrec.sandbox.aws.world import World
    from cloudrec.sandbox.http import Reply

ROOT_KEY = "AKIASANDBOX000000000"
_OPEN = ("sts:GetCallerIdentity",)  # needs no permission
# Which parameter hands a role to which service.
_PASSES = {
    ("eks", "CreateCluster"): ("roleArn", "eks.amazonaws.com"),
    ("eks", "CreateNodegroup"): ("nodeRole", "ec2.amazonaws.com"),
    ("eks", "CreateAddon"): ("serviceAccountRoleArn", "eks.amazonaws.com"),
    ("eks", "CreatePodIdentityAssociation"): ("roleArn", "pods.eks.amazonaws.com"),
    ("eks", "UpdatePodIdentityAssociation"): ("roleArn", "pods.eks.amazonaws.com"),
    ("iam", "AddRoleToInstanceProfile"): ("RoleName", "ec2.amazonaws.com"),
}


@dataclass
class Enforcement:
    """Whether permissions are checked."""

    on: bool = False


@operation("*", "*", order=-100)
def check(call: Call) -> Reply:
    """Refuse what the caller's policies do not allow."""
    if call.world.state(Enforcement).on and call.target.access_key != ROOT_KEY and not call.is_aside:
        who, documents = _caller(call)
        for wish in _wishes(call):
            if not allows(documents, wish):
                raise _denied(call, who, wish)
    return call.pass_on()


def _caller(call: Call) -> tuple[str, list[str | dict[str, Any]]]:
    """The caller's ARN and policies."""
    iam, key = call.world.backend("iam", GLOBAL), call.target.access_key
    for user in iam.users.values():
        if any(known.access_key_id == key and known.status == "Active" for known in user.access_keys):
            groups = [group for group in iam.groups.values() if user in group.users]
            return str(user.arn), [text for owner in (user, *groups) for text in _documents(owner)]
    for session in call.world.backend("sts", GLOBAL).assumed_roles:
        if session.access_key_id == key:
            name = session.role_arn.rpartition("/")[2]
            role = next((role for role in iam.roles.values() if role.name == name), None)
            return str(session.arn), list(_documents(role)) if role else []
    message = "The security token included in the request is invalid."
    if call.service == "ec2":
        raise AwsError("AuthFailure", message, status=HTTPStatus.UNAUTHORIZED)
    code = "InvalidAccessKeyId" if call.service == "s3" else "InvalidClientTokenId"
    raise AwsError(code, message, status=HTTPStatus.FORBIDDEN)


def _documents(owner: Any) -> Iterator[str | dict[str, Any]]:  # noqa: ANN401 - moto's users, groups, roles
    yield from owner.policies.values()
    for policy in owner.managed_policies.values():
        yield next(version.document for version in policy.versions if version.is_default)


def _wishes(call: Call) -> Iterator[Wish]:
    """All that the call needs to be allowed."""
    action = call.target.iam_action
    if action in _OPEN:
        return
    facts = {"aws:requestedregion": [call.region], "aws:securetransport": ["true"]}
    facts |= _tag_facts(call) | (_thing_facts(call) if call.service == "ec2" else {})
    yield Wish(action=action, resource=_resource(call), facts=facts)
    if call.service == "ec2" and call.params.get("TagSpecifications"):
        yield Wish(action="ec2:CreateTags", facts=facts | {"ec2:createaction": [call.action]})
    passes = _PASSES.get((call.service, call.action))
    if passes and call.params.get(passes[0]):
        role = str(call.params[passes[0]])
        arn = role if role.startswith("arn:") else _role_arn(call, role)
        yield Wish(action="iam:PassRole", resource=arn, facts={"iam:passedtoservice": [passes[1]]})


def _role_arn(call: Call, name: str) -> str:
    """The role's ARN, which has its path; without one where there is no such role."""
    for role in call.world.backend("iam", GLOBAL).roles.values():
        if role.name == name:
            return str(role.arn)
    path = call.params.get("Path", "/") if call.action == "CreateRole" else "/"
    return f"arn:aws:iam::{call.account}:role{path}{name}"


def _thing_facts(call: Call) -> dict[str, list[str]]:
    """The tags of the things of EC2 that the request names, as condition keys."""
    ec2 = call.backend("ec2")
    groups = call.world.state(Groups, call.region).rows
    # An association bears no tags: its route table is what it is about.
    tables = {name: table.id for table in ec2.route_tables.values() for name in table.all_associations_ids}
    given = [
        name for value in call.params.values() for name in (value if isinstance(value, list) else [value])
    ]
    facts: dict[str, list[str]] = {}
    for name in (tables.get(name, name) for name in given if isinstance(name, str)):
        tags = {tag["Key"]: tag["Value"] for tag in groups.get(name, {}).get("Tags", [])}
        for key, content in (tags | ec2.tags.get(name, {})).items():
            facts.setdefault(f"aws:resourcetag/{key.lower()}", []).append(str(content))
    return facts


def _tag_facts(call: Call) -> dict[str, list[str]]:
    """The tags that the request brings, as condition keys."""
    tags: dict[str, str] = {}
    for specification in call.params.get("TagSpecifications", []):
        tags |= {tag["Key"]: tag["Value"] for tag in specification.get("Tags", [])}
    given = call.params.get("tags") or call.params.get("Tags") or []
    if isinstance(given, dict):
        tags |= {str(key): str(value) for key, value in given.items()}
    else:
        tags |= {tag["Key"]: tag["Value"] for tag in given if "Value" in tag}
    facts = {f"aws:requesttag/{key.lower()}": [value] for key, value in tags.items()}
    return facts | ({"aws:tagkeys": list(tags)} if tags else {})


def _resource(call: Call) -> str:
    """The ARN that the call is about, where its parameters tell it."""
    wish = call.params
    regional = f"{call.region}:{call.account}"
    if call.service == "s3" and wish.get("Bucket"):
        return f"arn:aws:s3:::{wish['Bucket']}" + (f"/{wish['Key']}" if wish.get("Key") else "")
    if call.service == "iam":
        return _identity(call)
    if call.service == "eks":
        cluster = wish.get("clusterName") or (wish.get("name") if "Cluster" in call.action else None)
        if cluster and wish.get("nodegroupName") and not call.action.startswith("Create"):
            return f"arn:aws:eks:{regional}:nodegroup/{cluster}/{wish['nodegroupName']}/*"
        return f"arn:aws:eks:{regional}:cluster/{cluster}" if cluster else ""
    if call.service == "logs" and wish.get("logGroupName"):
        return f"arn:aws:logs:{regional}:log-group:{wish['logGroupName']}"
    return ""


def _identity(call: Call) -> str:
    wish = call.params
    if wish.get("RoleName"):
        return _role_arn(call, wish["RoleName"])
    for key, kind in (("InstanceProfileName", "instance-profile"), ("UserName", "user")):
        if wish.get(key):
            return f"arn:aws:iam::{call.account}:{kind}/{wish[key]}"
    return ""


def _denied(call: Call, who: str, wish: Wish) -> AwsError:
    message = f"User: {who} is not authorized to perform: {wish.action}" + (
        f" on resource: {wish.resource}" if wish.resource else ""
    )
    if call.service == "ec2":
        text = f"You are not authorized to perform this operation. {message}"
        return AwsError("UnauthorizedOperation", text, status=HTTPStatus.FORBIDDEN)
    if call.service in ("iam", "sts", "s3", "autoscaling", "elbv2"):
        return AwsError("AccessDenied", message, status=HTTPStatus.FORBIDDEN)
    status = HTTPStatus.FORBIDDEN if call.service == "eks" else HTTPStatus.BAD_REQUEST
    return AwsError("AccessDeniedException", message, status=status)


def _write(world: World, value: object) -> None:
    world.state(Enforcement).on = bool(value)


setting("enforce_iam", read=lambda world: world.state(Enforcement).on, write=_write)
