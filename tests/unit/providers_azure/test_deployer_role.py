"""The deployer's role: only the actions that cloudrec calls and the roles that it assigns."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cloudrec.providers.azure.identity.roles import ROLES

INFRA = Path(__file__).parents[3] / "infra" / "azure"
ROLE = json.loads((INFRA / "deployer-role.json").read_text(encoding="utf-8"))


def test_the_role_has_no_wildcard_and_no_key_access() -> None:
    actions = ROLE["Actions"]
    assert actions == sorted(set(actions))
    assert not [action for action in actions if "*" in action or "listkeys" in action.lower()]
    assert ROLE["DataActions"] == []


def test_only_the_assigned_roles_can_be_granted_and_revoked() -> None:
    condition = (INFRA / "grants.condition").read_text(encoding="utf-8")
    lists = re.findall(r"GuidEquals \{([^}]*)\}", condition)
    assert [set(each.split(", ")) for each in lists] == [set(ROLES.values())] * 2
    assert condition.count("(") == condition.count(")")
