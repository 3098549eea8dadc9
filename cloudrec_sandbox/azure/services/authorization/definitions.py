"""Role definitions: the built-in ones, and the subscription's custom ones."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure import rules
from cloudrec_sandbox.azure.arm import bodies
from cloudrec_sandbox.azure.arm.errors import ArmError, malformed
from cloudrec_sandbox.azure.arm.pages import matching, page
from cloudrec_sandbox.azure.arm.registry import route
from cloudrec_sandbox.azure.services.authorization.access import Grants, role
from cloudrec_sandbox.azure.services.authorization.roles import BUILT_IN, Role
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call

TYPE = "Microsoft.Authorization/roleDefinitions"
_APIS = ("2022-04-01", "2022-05-01-preview")
_MODEL = "azure.mgmt.authorization.v2022_04_01.models:RoleDefinition"
_PAGE = 1000


@route("GET", TYPE)
def read(call: Call) -> Reply:
    """Return one, or all that match a filter such as roleName eq 'AcrPull'."""
    rules.check_version(call, TYPE, _APIS)
    subscription = call.path.subscription
    if call.path.is_item:
        return json_reply(_found(call).document(subscription))
    roles = [*BUILT_IN, *call.world.state(Grants).custom.values()]
    rows = [each.document(subscription) for each in roles]
    functions = {"atScopeAndBelow": _always, "atScope": _always}
    return page(call, matching(call, rows, functions=functions, names=("roleName", "type")), _PAGE)


def _always(_document: dict[str, Any]) -> bool:
    return True


def _found(call: Call) -> Role:
    found = role(call.world, call.path.name)
    if found is None:
        raise ArmError(
            "RoleDefinitionDoesNotExist",
            f"The specified role definition with ID '{call.path.name}' does not exist.",
            status=HTTPStatus.NOT_FOUND,
        )
    return found


@route("PUT", TYPE)
def create(call: Call) -> Reply:
    """Create or change a custom role."""
    rules.check_version(call, TYPE, _APIS)
    if faults := bodies.faults(_MODEL, call.body):
        raise malformed("InvalidRequestContent", faults)
    if any(each.id == call.path.name.lower() for each in BUILT_IN):
        raise ArmError(
            "RoleDefinitionUpdateNotPermitted",
            "Built-in role definitions cannot be updated.",
            status=HTTPStatus.FORBIDDEN,
        )
    properties = call.body["properties"]
    permission = (properties.get("permissions") or [{}])[0]
    made = Role(
        id=call.path.name.lower(),
        title=str(properties.get("roleName") or ""),
        description=str(properties.get("description") or ""),
        actions=tuple(permission.get("actions") or ()),
        not_actions=tuple(permission.get("notActions") or ()),
        data_actions=tuple(permission.get("dataActions") or ()),
        not_data_actions=tuple(permission.get("notDataActions") or ()),
        kind="CustomRole",
        scopes=tuple(properties.get("assignableScopes") or ()),
    )
    if not made.scopes:
        raise ArmError("MissingAssignableScopes", "The role definition has no assignable scopes.")
    call.world.state(Grants).custom[made.id] = made
    return json_reply(made.document(call.path.subscription), HTTPStatus.CREATED)


@route("DELETE", TYPE)
def delete(call: Call) -> Reply:
    """Delete a custom role without assignments; 204 if it does not exist."""
    rules.check_version(call, TYPE, _APIS)
    grants, guid = call.world.state(Grants), call.path.name.lower()
    if guid not in grants.custom:
        return Reply(status=HTTPStatus.NO_CONTENT)
    if any(row.role == guid for row in grants.rows.values()):
        raise ArmError(
            "RoleDefinitionHasAssignments", "There are existing role assignments referencing this role."
        )
    return json_reply(grants.custom.pop(guid).document(call.path.subscription))
