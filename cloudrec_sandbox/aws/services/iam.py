"""IAM is eventually consistent: a new role cannot be read at once, and can be used only later.

GetRole misses a role for `iam-read` seconds, and services cannot use a role or a profile for `iam-role` and
`iam-profile` seconds. Trust in a principal that does not exist is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.loaders import Loader

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.api.world import ACCOUNT

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

GLOBAL = "aws"
# The access key of the account's owner, which no policy restricts.
ROOT_KEY, _OWNER = "AKIASANDBOX000000000", f"arn:aws:iam::{ACCOUNT}:user/sandbox"
# Principals whose names are not a service's name in botocore ("AWS services that work with IAM" names them).
_PARTS = frozenset(
    {"batch", "codebuild", "delivery.logs", "ecs-tasks", "edgelambda", "eks-fargate-pods", "eks-nodegroup"}
    | {"elasticloadbalancing", "monitoring", "pods.eks", "s3.data-source.lustre.fsx", "scheduler", "spot"}
    | {"spotfleet", "states", "vpc-flow-logs"}
)

durations({"iam-read": 2, "iam-role": 8, "iam-profile": 8})


@dataclass
class Births:
    """When roles and instance profiles were created, by name."""

    roles: dict[str, float] = field(default_factory=dict)
    profiles: dict[str, float] = field(default_factory=dict)


def role_name(arn: str) -> str:
    """Return the name in a role's ARN, or the name itself."""
    return arn.rpartition("/")[2]


def role_of(world: World, arn: str) -> Any | None:  # noqa: ANN401 - moto's role
    """Return the role as other services see it: None while it is missing or too young."""
    if not arn.startswith("arn:aws:iam::") or ":role/" not in arn:
        return None
    name = role_name(arn)
    # Names of roles are unique in an account, whatever their path, but an ARN with another path is no role.
    role = next((role for role in world.backend("iam", GLOBAL).roles.values() if role.name == name), None)
    if role is None or role.arn != arn:
        return None
    # IAM is eventually consistent: other services see a new role some seconds later.
    born = world.state(Births).roles.get(name, 0.0)
    return role if world.now() - born >= world.duration("iam-role") else None


def caller(call: Call) -> str:
    """Return the ARN of the caller: of the role, not of its session."""
    return keys(call.world).get(call.target.access_key, _OWNER)


def keys(world: World) -> dict[str, str]:
    """Return the ARN of the user or role of each active access key; a role has those of its sessions."""
    users = world.backend("iam", GLOBAL).users.values()
    sessions = world.backend("sts", GLOBAL).assumed_roles
    return {
        ROOT_KEY: _OWNER,
        **{
            key.access_key_id: str(user.arn)
            for user in users
            for key in user.access_keys
            if key.status == "Active"
        },
        **{session.access_key_id: str(session.role_arn) for session in sessions},
    }


def is_principal(world: World, arn: str) -> bool:
    """Return whether a policy can name the role or user of that ARN by now."""
    if ":user/" in arn:
        return arn in {user.arn for user in world.backend("iam", GLOBAL).users.values()}
    return role_of(world, arn) is not None


def profile_is_visible(world: World, name_or_arn: str) -> bool:
    """Return whether EC2 can use an instance profile by now."""
    name = role_name(name_or_arn)
    if name not in {profile.name for profile in world.backend("iam", GLOBAL).instance_profiles.values()}:
        return False
    return world.now() - world.state(Births).profiles.get(name, 0.0) >= world.duration("iam-profile")


def trusts(role: Any, service: str, *, action: str = "sts:AssumeRole") -> bool:  # noqa: ANN401 - moto's role
    """Return whether a role lets `service` (as in eks.amazonaws.com) do `action`."""
    document = json.loads(role.assume_role_policy_document)
    for statement in _listed(document.get("Statement", [])):
        services = _listed(statement.get("Principal", {}).get("Service", []))
        if (
            statement.get("Effect") == "Allow"
            and service in services
            and action in _listed(statement["Action"])
        ):
            return True
    return False


def trusted_by(world: World, arn: str) -> set[str]:
    """Return the ARNs that may assume a role by its trust policy; none if there is no such role."""
    roles = world.backend("iam", GLOBAL).roles.values()
    document = next((role.assume_role_policy_document for role in roles if role.arn == arn), "{}")
    return {
        str(principal)
        for statement in _listed(json.loads(document).get("Statement", []))
        if statement.get("Effect") == "Allow" and isinstance(statement.get("Principal"), dict)
        for principal in _listed(statement["Principal"].get("AWS", []))
    }


def is_service(name: str) -> bool:
    """Return whether a service's principal exists: botocore's services, and parts of services."""
    front = name.removesuffix(".amazonaws.com")
    return front != name and front in _service_principals()


@cache
def _service_principals() -> frozenset[str]:
    loader = Loader()
    return frozenset(loader.list_available_services("service-2")) | _PARTS


def policy_names(role: Any) -> set[str]:  # noqa: ANN401 - moto's role
    """Return the names of the managed policies attached to a role."""
    return {policy.name for policy in role.managed_policies.values()}


def service_role(world: World, service: str, name: str) -> None:
    """Make a service-linked role, as AWS does when a service is first used."""
    iam = world.backend("iam", GLOBAL)
    if name not in {role.name for role in iam.roles.values()}:
        document = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
        }
        iam.create_role(
            role_name=name,
            assume_role_policy_document=json.dumps(document),
            path=f"/aws-service-role/{service}/",
            permissions_boundary=None,
            description="",
            tags=[],
            max_session_duration="3600",
        )


@operation("sts", "GetCallerIdentity")
def get_caller_identity(call: Call) -> dict[str, Any]:
    """Return the caller, under the same name as in other calls."""
    return {**call.output(), "Arn": caller(call)}


@operation("iam", "CreateRole")
def create_role(call: Call) -> dict[str, Any]:
    """Refuse trust in an unknown principal; record when the role was created."""
    _check_principals(call, call.params["AssumeRolePolicyDocument"])
    output = call.output()
    call.world.state(Births).roles[output["Role"]["RoleName"]] = call.world.now()
    return output


@operation("iam", "UpdateAssumeRolePolicy")
def update_assume_role_policy(call: Call) -> Reply:
    """Refuse trust in an unknown principal."""
    _check_principals(call, call.params["PolicyDocument"])
    return call.pass_on()


@operation("iam", "GetRole")
def get_role(call: Call) -> Reply:
    """Answer 404 for a role that is too young."""
    name = call.params["RoleName"]
    born = call.world.state(Births).roles.get(name, 0.0)
    if call.world.now() - born < call.world.duration("iam-read"):
        raise AwsError(
            "NoSuchEntity",
            f"The role with name {name} cannot be found.",
            status=HTTPStatus.NOT_FOUND,
        )
    return call.pass_on()


@operation("iam", "CreateInstanceProfile")
def create_instance_profile(call: Call) -> dict[str, Any]:
    """Record when the profile was created."""
    output = call.output()
    call.world.state(Births).profiles[output["InstanceProfile"]["InstanceProfileName"]] = call.world.now()
    return output


@operation("iam", "AddRoleToInstanceProfile")
def add_role(call: Call) -> Reply:
    """Refuse a second role: moto does so with a wrong status."""
    profiles = call.world.backend("iam", GLOBAL).instance_profiles.values()
    name = call.params["InstanceProfileName"]
    if any(profile.name == name and profile.roles for profile in profiles):
        message = "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1"
        raise AwsError("LimitExceeded", message, status=HTTPStatus.CONFLICT)
    return call.pass_on()


@operation("iam", "DeletePolicy")
def delete_policy(call: Call) -> Reply:
    """Refuse a policy in use, or with other versions than its default one."""
    policy = call.world.backend("iam", GLOBAL).managed_policies.get(call.params["PolicyArn"])
    # botocore's model, DeletePolicy: detach it and delete its other versions first.
    if policy is not None and policy.attachment_count > 0:
        message = "Cannot delete a policy attached to entities."
        raise AwsError("DeleteConflict", message, status=HTTPStatus.CONFLICT)
    if policy is not None and len(policy.versions) > 1:
        message = "This policy has more than one version. Delete the non-default versions first."
        raise AwsError("DeleteConflict", message, status=HTTPStatus.CONFLICT)
    return call.pass_on()


def _check_principals(call: Call, document: str) -> None:
    """Raise MalformedPolicyDocument if the trust names a role or user that does not exist, or not yet."""
    try:
        statements = _listed(json.loads(document).get("Statement", []))
    except (ValueError, AttributeError):
        return  # moto refuses it with the right error
    iam = call.world.backend("iam", GLOBAL)
    users = {user.arn for user in iam.users.values()}
    for statement in statements:
        principal = statement.get("Principal", {})
        for service in _listed(principal.get("Service", []) if isinstance(principal, dict) else []):
            if not is_service(service):
                message = f'Invalid principal in policy: "SERVICE":"{service}"'
                raise AwsError("MalformedPolicyDocument", message)
        for arn in _listed(principal.get("AWS", []) if isinstance(principal, dict) else []):
            own = arn.startswith(f"arn:aws:iam::{call.account}:") and not arn.endswith(":root")
            if own and arn not in users and role_of(call.world, arn) is None:
                raise AwsError("MalformedPolicyDocument", f'Invalid principal in policy: "AWS":"{arn}"')


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return value if isinstance(value, list) else [value]
