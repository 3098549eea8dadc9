"""Role assignments. They outlive their principal, and take effect some time after their creation.

`lag_s` of /_control has `role-assignments`: for that long after its creation every other GET misses one.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cloudrec_sandbox.azure import rules
from cloudrec_sandbox.azure.arm import bodies
from cloudrec_sandbox.azure.arm.errors import ArmError, group_not_found, malformed, not_found
from cloudrec_sandbox.azure.arm.pages import matching, page
from cloudrec_sandbox.azure.arm.paths import GROUP
from cloudrec_sandbox.azure.arm.registry import Entry, forgotten, inventory, route
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.authorization import conditions, principals
from cloudrec_sandbox.azure.services.authorization.access import TYPE, Assignment, Grants, at, below, role
from cloudrec_sandbox.azure.services.authorization.roles import PATH
from cloudrec_sandbox.azure.services.lag import declare, lag, misses
from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_APIS = ("2022-04-01",)
_MODEL = "azure.mgmt.authorization.v2022_04_01.models:RoleAssignmentCreateParameters"
_LAG = declare("role-assignments")
_PAGE = 500


@route("PUT", TYPE)
def create(call: Call) -> Reply:
    """Create an assignment, or return an equal one that exists."""
    rules.check_version(call, TYPE, _APIS)
    if faults := bodies.faults(_MODEL, call.body):
        raise malformed("InvalidRequestContent", faults)
    wanted, rows = _wanted(call), call.world.state(Grants).rows
    conditions.check(call, wanted)
    wanted = conditions.checked(call, wanted)
    old = next((row for row in rows.values() if row.name.lower() == wanted.name.lower()), None)
    # An assignment's role, principal and scope never change; a PUT with the same ones is no change.
    if old is not None:
        if _essence(old) != _essence(wanted):
            raise ArmError(
                "RoleAssignmentUpdateNotPermitted",
                "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.",
            )
        wanted = replace(wanted, made_at=old.made_at, counts_from=old.counts_from, made_by=old.made_by)
    # Another name for the same role, principal and scope: ARM allows one assignment of them.
    elif any(_essence(row) == _essence(wanted) for row in rows.values()):
        raise ArmError(
            "RoleAssignmentExists", "The role assignment already exists.", status=HTTPStatus.CONFLICT
        )
    rows[wanted.id.lower()] = wanted
    return json_reply(_document(wanted), HTTPStatus.OK if old else HTTPStatus.CREATED)


def _essence(row: Assignment) -> tuple[str, str, str]:
    return row.scope.rstrip("/").lower(), row.role.lower(), row.principal.lower()


def _wanted(call: Call) -> Assignment:
    """Return the assignment of a call; ArmError if its role or principal does not exist."""
    properties, name = call.body["properties"], call.path.name
    _check_guid(name)
    check_scope(call)
    guid = str(properties["roleDefinitionId"]).rpartition("/")[2]
    if PATH.lower() not in str(properties["roleDefinitionId"]).lower() or role(call.world, guid) is None:
        raise ArmError(
            "RoleDefinitionDoesNotExist",
            f"The specified role definition with ID '{guid}' does not exist.",
            status=HTTPStatus.NOT_FOUND,
        )
    return Assignment(
        id=call.path.text,
        name=name,
        scope=call.path.scope or "/",
        role=guid.lower(),
        principal=str(properties["principalId"]),
        kind=_principal_kind(call, properties),
        made_at=call.world.now(),
        counts_from=call.world.now() + call.world.duration("role-assignment-effect"),
        made_by=call.caller.principal,
        description=properties.get("description"),
        condition=properties.get("condition"),
        condition_version=properties.get("conditionVersion"),
    )


def _check_guid(name: str) -> None:
    try:
        UUID(name)
    except ValueError as error:
        raise ArmError(
            "InvalidRoleAssignmentId",
            f"The role assignment ID '{name}' is not valid. The role assignment ID must be a GUID.",
        ) from error


def _principal_kind(call: Call, properties: Mapping[str, Any]) -> str:
    # azure-mgmt-authorization's model: principalType defaults to User, so service principals must be named.
    object_id, wanted = str(properties["principalId"]), properties.get("principalType") or principals.USER
    found = principals.find(call.world, object_id)
    if found is None:
        raise ArmError(
            "PrincipalNotFound",
            f"Principal {object_id.replace('-', '')} does not exist in the directory {call.caller.tenant}. "
            "Check that you have the correct principal ID. If you are creating this principal and then "
            "immediately assigning a role, this error might be related to a replication delay. In this case, "
            "set the role assignment principalType property to a value, such as ServicePrincipal, User, or "
            "Group. See https://aka.ms/docs-principaltype",
        )
    if found.kind != wanted:
        raise ArmError(
            "UnmatchedPrincipalType",
            f"The PrincipalId '{object_id.replace('-', '')}' has type '{found.kind}' , which is different "
            f"from specified PrinciaplType '{wanted}'.",
        )
    return found.kind


def check_scope(call: Call) -> None:
    """Refuse a scope in a group or a resource that does not exist."""
    path, scope = call.path, call.path.scope
    group = f"/subscriptions/{path.subscription}/resourceGroups/{path.group}"
    if path.group and store(call.world).find(group) is None:
        raise group_not_found(path.group)
    if "/providers/" in scope.lower() and store(call.world).find(scope) is None:
        inner = scope.lower().rpartition("/providers/")[2].split("/")
        raise not_found(scope, "/".join([inner[0], *inner[1::2]]), path.group)


@route("GET", TYPE)
def read(call: Call) -> Reply:
    """Return one assignment, or those at a scope, above it and below it."""
    rules.check_version(call, TYPE, _APIS)
    if call.path.is_item:
        return json_reply(_document(_found(call)))
    scope = call.path.scope or "/"
    found = {row.id: row for row in (*at(call.world, scope), *below(call.world, scope))}
    rows = [_document(row) for row in found.values() if not _is_young(call.world, row)]
    return page(call, matching(call, rows, functions=_functions(scope), names=("principalId",)), _PAGE)


def _functions(scope: str) -> dict[str, Any]:
    """Return the filter functions. atScope(): made there or above; assignedTo('ID'): to that principal."""
    wanted = f"{scope.rstrip('/').lower()}/"
    return {
        "atScope": lambda document: wanted.startswith(
            f"{document['properties']['scope'].rstrip('/').lower()}/"
        ),
        "assignedTo": lambda document, principal: (
            document["properties"]["principalId"].lower() == principal.lower()
        ),
    }


def _is_young(world: World, row: Assignment) -> bool:
    return world.now() - row.made_at < lag(world, _LAG)


def _found(call: Call) -> Assignment:
    """Return the assignment of a call; every other GET misses a young one."""
    row = call.world.state(Grants).rows.get(call.path.key)
    if row is None or misses(call.world, _LAG, row.id, row.made_at):
        raise ArmError(
            "RoleAssignmentNotFound",
            f"The role assignment '{call.path.name}' is not found.",
            status=HTTPStatus.NOT_FOUND,
        )
    return row


@route("DELETE", TYPE)
def delete(call: Call) -> Reply:
    """Delete an assignment; 204 if it does not exist."""
    rules.check_version(call, TYPE, _APIS)
    row = call.world.state(Grants).rows.get(call.path.key)
    if row is None:
        return Reply(status=HTTPStatus.NO_CONTENT)
    conditions.check(call, row)
    del call.world.state(Grants).rows[call.path.key]
    return json_reply(_document(row))


def _document(row: Assignment) -> dict[str, Any]:
    subscription = row.scope.split("/")[2] if row.scope.lower().startswith("/subscriptions/") else ""
    prefix = f"/subscriptions/{subscription}" if subscription else ""
    made = as_datetime(row.made_at).isoformat()
    return {
        "id": row.id,
        "type": TYPE,
        "name": row.name,
        "properties": {
            "roleDefinitionId": f"{prefix}{PATH}{row.role}",
            "principalId": row.principal,
            "principalType": row.kind,
            "scope": row.scope,
            "condition": row.condition,
            "conditionVersion": row.condition_version,
            "createdOn": made,
            "updatedOn": made,
            "createdBy": row.made_by,
            "updatedBy": row.made_by,
            "delegatedManagedIdentityResourceId": None,
            "description": row.description,
        },
    }


@forgotten
def follow_group(world: World, gone: Resource) -> None:
    """Delete the assignments in a resource group with it; those of a single resource stay after it."""
    if gone.type == GROUP:
        rows = world.state(Grants).rows
        for row in list(below(world, gone.id)):
            del rows[row.id.lower()]


@inventory
def existing(world: World) -> Iterator[Entry]:
    """Yield the assignments that calls have made."""
    for row in world.state(Grants).rows.values():
        if not row.by_us:
            yield Entry("authorization", "roleAssignments", row.id)
