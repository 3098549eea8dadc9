"""A capacity reservation group of others: its owner gives the cluster's identity the right to use it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cloudrec.errors import CloudrecError, PreflightError, SpecError
from cloudrec.providers.azure.identity.roles import ROLES
from tests.contract.azure.support import Site
from tests.contract.azure.support_deployer import Deployer
from tests.contract.azure.test_cluster_side import ZONES
from tests.sandbox.azure.support import LOCATION, Azure

OTHERS = "reserved"
SIZE = "Standard_NC4as_T4_v3"
_ROLES = "/providers/Microsoft.Authorization/roleDefinitions"
_CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"


def reserve(azure: Azure) -> str:
    """A group with reservations, in a resource group of others; its id."""
    azure.control(registered=["*"])
    azure.group(OTHERS)
    compute = azure.client("compute")
    made = compute.capacity_reservation_groups.create_or_update(
        OTHERS, "held", {"location": LOCATION, "zones": list(ZONES)}
    )
    wish = {"location": LOCATION, "zones": [ZONES[0]], "sku": {"name": SIZE, "capacity": 2}}
    azure.done(compute.capacity_reservations.begin_create_or_update, OTHERS, "held", "one", wish)
    return str(made.id)


def assignments(azure: Azure) -> list[str]:
    return [entry for entry in azure.state() if f"/{OTHERS}/" in entry and "roleAssignments" in entry]


def wanted(azure: Azure) -> dict[str, Any]:
    settings = {"capacity_reservation_group": reserve(azure)}
    return {
        "zones": ZONES[:1],
        "nodes": 2,
        "instance_types": [SIZE],
        "capacity": "on-demand",
        "settings": settings,
    }


def test_an_owner_assigns_the_role_and_down_removes_it(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, **wanted(azure))
    site.up()
    assert len(assignments(azure)) == 1
    site.down()
    assert assignments(azure) == []


def test_a_deployer_is_refused_before_the_cluster_with_the_command_for_the_owner(
    azure: Azure, tmp_path: Path
) -> None:
    given = wanted(azure)
    deployer = Deployer(azure, tmp_path)
    deployer.site = Site(azure, tmp_path, **given)
    with pytest.raises(CloudrecError, match="capacityReservationGroups/read") as caught:
        deployer.act("up")
    assert caught.value.exit_code == 3
    assert not [entry for entry in azure.state() if "managedClusters" in entry]
    reserved = given["settings"]["capacity_reservation_group"].partition("/providers/")[0]
    deployer.assign(reserved, ROLES["Reader"])
    azure.advance(3600)
    with pytest.raises(CloudrecError, match="may not use the capacity reservations") as caught:
        deployer.act("up")
    assert caught.value.exit_code == 3
    assert not [entry for entry in azure.state() if "managedClusters" in entry]
    command = re.search(r"az role assignment create .*--scope (\S+)`", str(caught.value.remedy))
    assert command is not None
    principal = re.search(r"--assignee-object-id (\S+)", command[0])
    assert principal is not None
    assign(azure, principal[1], command[1])
    deployer.act("up")  # the owner's assignment suffices
    kept = assignments(azure)
    deployer.act("down")
    assert assignments(azure) == kept  # it was made by others


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"zones": ZONES[1:2]}, f"2 x {SIZE} in zone {ZONES[1]}"),
        ({"zones": ZONES[:2]}, f"2 x {SIZE} in zone {ZONES[0]} and {ZONES[1]}"),
        ({"nodes": 3}, f"3 x {SIZE} in zone {ZONES[0]}"),
    ],
)
def test_a_group_without_the_nodes_in_every_zone_is_refused_before_anything_is_made(
    azure: Azure, tmp_path: Path, given: dict[str, Any], needed: str
) -> None:
    site = Site(azure, tmp_path, **{**wanted(azure), **given})
    since = len(azure.calls())
    found = rf"capacity reservation group: 2 x {SIZE} in zone {ZONES[0]}; needed: {needed}"
    with pytest.raises(PreflightError, match=found):
        site.up()
    assert site.changes(since) == []


@pytest.mark.parametrize("capacity", ["block", "flex-start"])
def test_capacity_types_that_azure_does_not_have_are_refused(
    azure: Azure, tmp_path: Path, capacity: str
) -> None:
    with pytest.raises(SpecError, match=f"cluster.capacity is {capacity}; azure has on-demand") as caught:
        Site(azure, tmp_path, capacity=capacity).up()
    assert "capacity reservation group" in str(caught.value.remedy)


def assign(azure: Azure, principal: str, scope: str, role: str = _CONTRIBUTOR) -> None:
    """What the command does, as the subscription's owner."""
    definition = f"/subscriptions/{azure.subscription}{_ROLES}/{role}"
    properties = {
        "roleDefinitionId": definition,
        "principalId": principal,
        "principalType": "ServicePrincipal",
    }
    client = azure.client("authorization")
    client.role_assignments.create(scope, str(uuid4()), {"properties": properties})
