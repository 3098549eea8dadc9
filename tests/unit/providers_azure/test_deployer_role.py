"""The deployer's role: only the actions that cloudrec calls and the roles that it assigns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloudrec.providers.azure.identity.roles import ROLES

INFRA = Path(__file__).parents[3] / "infra" / "azure"
ROLES_SHIPPED = {
    name: json.loads((INFRA / f"{name}-role.json").read_text(encoding="utf-8"))
    for name in ("deployer", "subscription", "groups")
}
# What reveals no setting of a resource of others: indexes, operations, and what belongs to the subscription.
_SHOWS = re.compile(
    r"Microsoft\.(Resources/subscriptions(/.*)?|Authorization/role(Assignments|Definitions)|\w+/locations/.*|Compute/skus"
    r"|\w+/checkname\w+|Features/providers/features)/read",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", ROLES_SHIPPED)
def test_the_roles_have_no_wildcard_and_no_key_access(name: str) -> None:
    role = ROLES_SHIPPED[name]
    actions = role["Actions"]
    assert actions == sorted(set(actions))
    assert not [action for action in actions if "*" in action or "listkeys" in action.lower()]
    assert role["DataActions"] == []


def test_the_role_in_the_subscription_only_looks_and_registers() -> None:
    actions = ROLES_SHIPPED["subscription"]["Actions"]
    rest = [action for action in actions if not action.endswith("/register/action")]
    assert [action for action in rest if not _SHOWS.fullmatch(action)] == []
    assert not {*actions} & {*ROLES_SHIPPED["deployer"]["Actions"]}


def test_only_the_assigned_roles_can_be_granted_and_revoked() -> None:
    condition = (INFRA / "grants.condition").read_text(encoding="utf-8")
    lists = re.findall(r"GuidEquals \{([^}]*)\}", condition)
    assert [set(each.split(", ")) for each in lists] == [set(ROLES.values())] * 2
    assert condition.count("(") == condition.count(")")
