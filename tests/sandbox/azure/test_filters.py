"""Filters and roles mean what Azure lets them mean."""

from __future__ import annotations

import pytest

from cloudrec_sandbox.azure.arm.odata import FilterError, parse
from cloudrec_sandbox.azure.services.authorization.roles import BUILT_IN

_ROW = {"name": "one", "location": "eastus", "isPrimary": True, "properties": {"principalId": "p'q"}}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("name eq 'one'", True),
        ("name ne 'one'", False),
        ("name eq 'two' or location eq 'eastus' and isPrimary eq true", True),
        ("(name eq 'two' or location eq 'eastus') and isPrimary eq false", False),
        ("not (name eq 'two')", True),
        ("principalId eq 'p''q'", True),
        ("properties/principalId eq 'p''q'", True),
        ("contains(name, 'ne') and startswith(location, 'east')", True),
    ],
)
def test_filters_are_evaluated_on_documents(text: str, *, holds: bool) -> None:
    assert parse(text)(_ROW) is holds


def test_unsupported_filter_fields_are_refused() -> None:
    assert parse("name eq 'one'", names=("name",))(_ROW)
    for text in ("location eq 'eastus'", "contains(location, 'east')"):
        with pytest.raises(FilterError, match="only for name"):
            parse(text, names=("name",))


@pytest.mark.parametrize(
    "text", ["name", "name eq", "name is 'one'", "(name eq 'one'", "near(name, 'one')", "name eq 'one' 'two'"]
)
def test_an_invalid_filter_is_refused(text: str) -> None:
    with pytest.raises(FilterError):
        parse(text)


@pytest.mark.parametrize(
    ("title", "action", "data", "allowed"),
    [
        ("Contributor", "Microsoft.Network/virtualNetworks/write", False, True),
        ("Contributor", "Microsoft.Authorization/roleAssignments/write", False, False),
        ("Contributor", "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read", True, False),
        ("Reader", "Microsoft.Compute/skus/read", False, True),
        (
            "Managed Identity Operator",
            "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
            False,
            True,
        ),
        ("Network Contributor", "microsoft.network/virtualnetworks/subnets/join/action", False, True),
        ("AcrPull", "Microsoft.ContainerRegistry/registries/repositories/content/read", True, False),
        (
            "Azure Kubernetes Service RBAC Cluster Admin",
            "Microsoft.ContainerService/managedClusters/pods/read",
            True,
            True,
        ),
    ],
)
def test_a_role_allows_the_actions_that_its_patterns_match(
    title: str, action: str, *, data: bool, allowed: bool
) -> None:
    (role,) = (role for role in BUILT_IN if role.title == title)
    assert role.allows(action, data=data) is allowed
