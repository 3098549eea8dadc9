"""IAM policies: replaced by a client that has the newest etag, and read as they were for some seconds.

Each resource with a policy is a holder: projects/P, b/BUCKET, projects/P/locations/L/repositories/R, or a
service account's path.
"""

from __future__ import annotations

import base64
import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import access, projects, tokens
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.services.iam import members, roles
from cloudrec_sandbox.gcp.services.iam.expressions import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"iam-policy-lag": 3})  # seconds for which the old policy is still read

_OWNER = "roles/owner"
_WITH_CONDITIONS = 3
_MOST_MEMBERS = 1500
_FIELDS = frozenset(("version", "bindings", "etag", "auditConfigs", "kind", "resourceId"))


@dataclass
class Policy:
    """One holder's policy: its bindings, the number of its changes, and the previous policy and its end."""

    bindings: list[dict[str, Any]] = field(default_factory=list)
    changes: int = 1
    before: tuple[list[dict[str, Any]], int] = ([], 0)
    until: float = 0.0


def _first() -> dict[str, Policy]:
    """Return the policies at the start: the project's."""
    number = projects.NUMBER
    agents = {
        _OWNER: ["user:owner@example.com", f"serviceAccount:{tokens.CALLER}"],
        "roles/container.serviceAgent": [
            f"serviceAccount:service-{number}@container-engine-robot.iam.gserviceaccount.com"
        ],
        "roles/editor": [f"serviceAccount:{number}@cloudservices.gserviceaccount.com"],
    }
    bindings = [{"role": role, "members": who} for role, who in agents.items()]
    return {f"projects/{projects.HOME}": Policy(bindings=bindings)}


@dataclass
class Policies:
    """All policies by holder."""

    policies: dict[str, Policy] = field(default_factory=_first)


def of(world: World, holder: str) -> Policy:
    """Return the policy of a holder; empty at first."""
    return world.state(Policies).policies.setdefault(holder, Policy())


def forget(world: World, holder: str) -> None:
    """Forget the policy of a deleted holder."""
    world.state(Policies).policies.pop(holder, None)


def etag(changes: int) -> str:
    """Return the etag of a policy after a number of changes."""
    return base64.b64encode(b"\x07\x06" + changes.to_bytes(6, "big")).decode()


def read(world: World, holder: str) -> dict[str, Any]:
    """Return the policy that a client reads: for some seconds after a change, the previous one."""
    policy = of(world, holder)
    bindings, changes = policy.bindings, policy.changes
    if world.now() < policy.until:
        bindings, changes = policy.before
    version = _WITH_CONDITIONS if any("condition" in each for each in bindings) else 1
    return {"version": version, "etag": etag(changes), "bindings": copy.deepcopy(bindings)}


def write(world: World, holder: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a policy; GcpError for a stale etag (ABORTED), unknown roles or members."""
    policy = of(world, holder)
    if unknown := sorted(set(wanted) - _FIELDS):
        raise _invalid(f"Unknown name \"{unknown[0]}\" at 'policy': Cannot find field.")
    if wanted.get("etag") not in (None, "", etag(policy.changes)):
        raise GcpError(
            "ABORTED",
            "There were concurrent policy changes. Please retry the whole read-modify-write with exponential"
            f" backoff. The request's ETag '{wanted['etag']}' did not match the current policy's ETag"
            f" '{etag(policy.changes)}'.",
        )
    bindings = [_checked(world, holder, each, wanted) for each in wanted.get("bindings", [])]
    bindings = [each for each in bindings if each["members"]]
    if _owners(policy.bindings) and not _owners(bindings):
        raise _invalid("Policy update request would remove the last owner of the project.")
    if sum(len(each["members"]) for each in bindings) > _MOST_MEMBERS:
        raise _invalid(f"The policy contains more than {_MOST_MEMBERS} members.")
    policy.before, policy.until = (
        (policy.bindings, policy.changes),
        world.now() + world.duration("iam-policy-lag"),
    )
    policy.bindings, policy.changes = bindings, policy.changes + 1
    version = _WITH_CONDITIONS if any("condition" in each for each in bindings) else 1
    return {"version": version, "etag": etag(policy.changes), "bindings": copy.deepcopy(bindings)}


def _owners(bindings: list[dict[str, Any]]) -> bool:
    return any(each["role"] == _OWNER for each in bindings)


def _invalid(text: str) -> GcpError:
    return GcpError("INVALID_ARGUMENT", text)


def _checked(
    world: World, holder: str, binding: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a binding as it is kept."""
    role, condition = str(binding.get("role", "")), binding.get("condition")
    if not roles.exists(world, role):
        raise _invalid(f"Role {role} does not exist in the resource's hierarchy.")
    if not roles.fits(role, holder):
        raise _invalid(f"Role {role} is not supported for this resource.")
    if condition and wanted.get("version") != _WITH_CONDITIONS:
        raise _invalid("Specified policy version is lower than needed: conditions need version 3.")
    if condition and not (condition.get("title") and condition.get("expression")):
        raise _invalid("A condition needs a title and an expression.")
    known = {who for each in of(world, holder).bindings for who in each["members"]}
    named = list(dict.fromkeys(map(str, binding.get("members", []))))
    # A member that was valid when it was added may stay, even if it is gone by now.
    for who in named:
        if who not in known:
            members.check(world, who, holder)
    return {"role": role, "members": named, **({"condition": dict(condition)} if condition else {})}


def bury(world: World, email: str, unique: str) -> None:
    """Mark a deleted account's members as deleted in all policies."""
    alive, dead = f"serviceAccount:{email}", f"deleted:serviceAccount:{email}?uid={unique}"
    for policy in world.state(Policies).policies.values():
        for binding in policy.bindings:
            if alive in binding["members"]:
                binding["members"] = [dead if who == alive else who for who in binding["members"]]
                policy.changes += 1
                # The deletion shows at once, unlike a change of the policy.
                policy.until = 0.0


_ACTIVE_PROJECT = re.compile(r"projects/[^/]+")


def allows(
    world: World,
    holder: str,
    who: str,
    permission: str,
    *,
    name: str = "",
    kind: str = "",
    modified: AbstractSet[str] | None = None,
) -> bool:
    """Return whether a policy gives `who` a permission on a resource with this full name and type.

    Args:
        world: the state.
        holder: whose policy.
        who: the member.
        permission: "storage.buckets.get".
        name: of the resource, as conditions see it.
        kind: of the resource, as conditions see it.
        modified: the roles whose members the call changes; None if that is not known yet.
    """
    granted = roles_of(world, holder, who, name=name, kind=kind, modified=modified)
    return any(roles.gives(world, role, permission) for role in granted)


def roles_of(
    world: World,
    holder: str,
    who: str,
    *,
    name: str,
    kind: str,
    modified: AbstractSet[str] | None = None,
) -> list[str]:
    """Return the roles that a policy gives `who` on a resource; see `allows`."""
    return [
        binding["role"]
        for binding in of(world, holder).bindings
        if who in binding["members"]
        and (
            "condition" not in binding
            or holds(binding["condition"]["expression"], name=name, kind=kind, modified=modified)
        )
    ]


def _modified(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> set[str]:
    """Return the roles of which members were added or removed."""
    old, new = _granted(before), _granted(after)
    return {role for role, *_ in old ^ new}


def _granted(bindings: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (str(each.get("role", "")), str(each.get("condition", {}).get("expression", "")), str(who))
        for each in bindings
        for who in each.get("members", ())
    }


def _may_change(call: Call, holder: str, permission: str, changed: AbstractSet[str]) -> bool:
    """Return whether the caller may change the members of these roles.

    A condition can limit that ("Set limits on granting roles", IAM's documentation). It is known only here,
    after the general check of the permission.
    """
    if not call.world.state(access.Permissions).enforced:
        return True
    who, project = f"serviceAccount:{call.caller}", _ACTIVE_PROJECT.match(holder)
    holders = {holder, project[0] if project else f"projects/{projects.HOME}"}
    return any(allows(call.world, one, who, permission, name=holder, modified=changed) for one in holders)


def serve(
    service: str,
    front: str,
    url: str,
    *,
    holder: Callable[[Call], str],
    permission: str,
    reads_by_get: bool = False,
) -> None:
    """Register getIamPolicy, setIamPolicy and testIamPermissions for a collection's resources."""
    verb, query, body = (
        ("GET", ("options.requestedPolicyVersion",), None) if reads_by_get else ("POST", (), dict)
    )

    @rest(
        service,
        f"{front}.getIamPolicy",
        verb,
        f"{url}:getIamPolicy",
        body=body,
        query=query,
        permission=f"{permission}.getIamPolicy",
    )
    def get_policy(call: Call) -> dict[str, Any]:
        return read(call.world, holder(call))

    @rest(
        service,
        f"{front}.setIamPolicy",
        "POST",
        f"{url}:setIamPolicy",
        body=dict,
        permission=f"{permission}.setIamPolicy",
    )
    def set_policy(call: Call) -> dict[str, Any]:
        if unknown := sorted(set(call.body) - {"policy", "updateMask"}):
            raise _invalid(f'Unknown name "{unknown[0]}": Cannot find field.')
        found, wanted = holder(call), call.body.get("policy", {})
        changed = _modified(of(call.world, found).bindings, wanted.get("bindings", []))
        if not _may_change(call, found, f"{permission}.setIamPolicy", changed):
            raise access.denied(call, f"{permission}.setIamPolicy", found)
        return write(call.world, found, wanted)

    @rest(service, f"{front}.testIamPermissions", "POST", f"{url}:testIamPermissions", body=dict)
    def test_permissions(call: Call) -> dict[str, Any]:
        asked = call.body.get("permissions", [])
        if wild := [each for each in asked if "*" in each]:
            raise _invalid(f"Permission {wild[0]} is not valid: wildcards are not allowed.")
        found = holder(call)
        who = f"serviceAccount:{call.caller}"
        project = _ACTIVE_PROJECT.match(found)
        holders = {found, project[0] if project else f"projects/{projects.HOME}"}
        given = [each for each in asked if any(allows(call.world, one, who, each) for one in holders)]
        return {"permissions": given} if given else {}

    del get_policy, set_policy, test_permissions
