"""Checks every call whose caller is not root."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation, setting
from cloudrec_sandbox.aws.services.iam import GLOBAL, ROOT_KEY, trusted_by
from cloudrec_sandbox.aws.services.permissions.demands import demands
from cloudrec_sandbox.aws.services.permissions.policies import Document, Wish, allows, denies
from cloudrec_sandbox.core.book import Decisions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply


@dataclass
class Enforcement:
    """Whether permissions are checked, and the actions that were allowed since then."""

    on: bool = False
    used: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller: its ARN, that of its user or role, its policies, and its boundary if it has one."""

    arn: str
    identity: str
    documents: tuple[Document, ...]
    boundary: tuple[Document, ...] | None = None


@operation("*", "*", order=-100)
def check(call: Call) -> Reply:
    """Refuse what the caller's policies do not allow."""
    if call.world.state(Enforcement).on and call.target.access_key != ROOT_KEY and not call.is_aside:
        for action in refuse(call):
            call.world.state(Enforcement).used.add(action)
    return call.pass_on()


def refuse(call: Call) -> list[str]:
    """Raise AwsError if the caller's policies do not allow a call; return the actions that it needs."""
    caller, actions = _caller(call), []
    for wish in demands(call):
        is_allowed = _may(call, caller, wish)
        call.world.state(Decisions).note(caller.identity, wish.action, is_allowed=is_allowed)
        if not is_allowed:
            raise _denied(call, caller, wish)
        actions.append(wish.action)
    return actions


def _may(call: Call, caller: Caller, wish: Wish) -> bool:
    """Return whether a caller may; a boundary allows nothing, but what it does not allow is refused."""
    if caller.boundary is not None and not allows(caller.boundary, wish):
        return False
    if wish.action != "sts:AssumeRole":
        return allows(caller.documents, wish)
    # Within an account, trust in the caller's ARN is enough, unless a policy of the caller denies it. Trust
    # in the account leaves it to the caller's policies (IAM's policy evaluation logic).
    trusted = trusted_by(call.world, wish.resource)
    if caller.arn in trusted:
        return not denies(caller.documents, wish)
    return f"arn:aws:iam::{call.account}:root" in trusted and allows(caller.documents, wish)


def _caller(call: Call) -> Caller:
    iam, key = call.world.backend("iam", GLOBAL), call.target.access_key
    for user in iam.users.values():
        if any(known.access_key_id == key and known.status == "Active" for known in user.access_keys):
            groups = [group for group in iam.groups.values() if user in group.users]
            documents = tuple(text for owner in (user, *groups) for text in _documents(owner))
            return Caller(arn=str(user.arn), identity=str(user.arn), documents=documents)
    for session in call.world.backend("sts", GLOBAL).assumed_roles:
        if session.access_key_id == key:
            role = next((role for role in iam.roles.values() if role.arn == session.role_arn), None)
            if role is None:
                return Caller(arn=str(session.arn), identity=str(session.role_arn), documents=())
            return _session(call.world, str(session.arn), role)
    message = "The security token included in the request is invalid."
    if call.service == "ec2":
        raise AwsError("AuthFailure", message, status=HTTPStatus.UNAUTHORIZED)
    code = "InvalidAccessKeyId" if call.service == "s3" else "InvalidClientTokenId"
    raise AwsError(code, message, status=HTTPStatus.FORBIDDEN)


def role_may(world: World, role: Any, wish: Wish) -> bool:  # noqa: ANN401 - moto's role
    """Return whether a role's policies and its boundary allow an action, which is recorded."""
    caller = _session(world, str(role.arn), role)
    is_allowed = allows(caller.documents, wish) and (caller.boundary is None or allows(caller.boundary, wish))
    world.state(Decisions).note(caller.identity, wish.action, is_allowed=is_allowed)
    return is_allowed


def _session(world: World, arn: str, role: Any) -> Caller:  # noqa: ANN401 - moto's role
    boundary = _managed(world, role.permissions_boundary_arn)
    return Caller(arn=arn, identity=str(role.arn), documents=tuple(_documents(role)), boundary=boundary)


def _managed(world: World, arn: str | None) -> tuple[Document, ...] | None:
    """Return a managed policy's document; None without a name. A policy that was deleted allows nothing."""
    if not arn:
        return None
    policy = world.backend("iam", GLOBAL).managed_policies.get(arn)
    return () if policy is None else (_current(policy),)


def _documents(owner: Any) -> Iterator[Document]:  # noqa: ANN401 - moto's users, groups, roles
    yield from owner.policies.values()
    for policy in owner.managed_policies.values():
        yield _current(policy)


def _current(policy: Any) -> Document:  # noqa: ANN401 - moto's policy
    document: Document = next(version.document for version in policy.versions if version.is_default)
    return document


def _denied(call: Call, caller: Caller, wish: Wish) -> AwsError:
    resource = f" on resource: {wish.resource}" if wish.resource else ""
    message = (
        f"User: {caller.arn} is not authorized to perform: {wish.action}{resource} {_reason(caller, wish)}"
    )
    if call.service == "ec2":
        text = f"You are not authorized to perform this operation. {message}"
        return AwsError("UnauthorizedOperation", text, status=HTTPStatus.FORBIDDEN)
    if call.service in ("iam", "sts", "s3", "autoscaling", "elbv2"):
        return AwsError("AccessDenied", message, status=HTTPStatus.FORBIDDEN)
    status = HTTPStatus.FORBIDDEN if call.service == "eks" else HTTPStatus.BAD_REQUEST
    return AwsError("AccessDeniedException", message, status=status)


def _reason(caller: Caller, wish: Wish) -> str:
    """Return which policy denies it, in the words of "Troubleshoot access denied error messages" (IAM)."""
    if denies(caller.documents, wish):
        return "with an explicit deny in an identity-based policy"
    if caller.boundary is not None and not allows(caller.boundary, wish):
        return f"because no permissions boundary allows the {wish.action} action"
    return f"because no identity-based policy allows the {wish.action} action"


def _write(world: World, value: object) -> None:
    state = world.state(Enforcement)
    state.on, state.used = bool(value), set()


def _forget(world: World, value: object) -> None:
    if value != []:
        raise ValueError("permissions_used can only be emptied: []")
    world.state(Enforcement).used.clear()


setting("permissions_used", read=lambda world: sorted(world.state(Enforcement).used), write=_forget)
setting("decisions", read=Decisions.read, write=Decisions.forget)
setting("enforce_iam", read=lambda world: world.state(Enforcement).on, write=_write)
