"""What a person grants once: no more than cloudrec calls, and only the roles that it assigns."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cloudrec.providers.azure.roles import ROLES

INFRA = Path(__file__).parents[3] / "infra" / "azure"
ROLE = json.loads((INFRA / "deployer-role.json").read_text(encoding="utf-8"))


def test_the_role_has_no_wildcard_and_reads_no_keys() -> None:
    actions = ROLE["Actions"]
    assert actions == sorted(set(actions))
    assert not [action for action in actions if "*" in action or "listkeys" in action.lower()]
    assert ROLE["DataActions"] == []


def test_exactly_the_roles_that_are_assigned_may_be_granted_and_taken_away() -> None:
    condition = (INFRA / "grants.condition").read_text(encoding="utf-8")
    lists = re.findall(r"GuidEquals \{([^}]*)\}", condition)
    assert [set(each.split(", ")) for each in lists] == [set(ROLES.values())] * 2
    assert condition.count("(") == condition.count(")")
