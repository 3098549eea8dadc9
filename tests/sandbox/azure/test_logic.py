"""Logic Apps' workflows: what is refused, and the calls of a recurrence."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from cloudrec.providers.azure.nodes.end_schedule import definition
from tests.contract.azure.support import Site, fresh
from tests.sandbox.azure.support import Azure, stand_in

SUBSCRIPTION = "/subscriptions/00000000-0000-4000-8000-000000000001"
GROUP = f"{SUBSCRIPTION}/resourceGroups/g"
WORKFLOW = f"{GROUP}/providers/Microsoft.Logic/workflows/w"
IDENTITY = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/end"
CLUSTER = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/c"
VERSION = "2019-05-01"


@pytest.fixture(scope="module")
def process() -> Any:
    with stand_in() as azure:
        yield azure


@pytest.fixture
def sdk(process: Azure, tmp_path: Any) -> Any:
    """Clients of a subscription that has a group and an identity, and has registered Logic Apps."""
    fresh(process, registered=["*"])
    sdk = Site(process, tmp_path).sdk
    sdk.resources.resource_groups.create_or_update("g", {"location": "eastus"})
    sdk.managedidentity.user_assigned_identities.create_or_update("g", "end", {"location": "eastus"})
    return sdk


def body(**changes: Any) -> dict[str, Any]:
    made = definition(
        arm="https://management.azure.com",
        cluster=CLUSTER,
        pools=["gpu1", "gpu2"],
        identity=IDENTITY,
        expires="2100-01-01T00:00:00Z",
    )
    return {
        "location": "eastus",
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {IDENTITY: {}}},
        "properties": {"state": "Enabled", "definition": made},
        **changes,
    }


def put(sdk: Any, row: dict[str, Any]) -> Any:
    calls = sdk.resources.resources
    return calls.begin_create_or_update_by_id(WORKFLOW, row, api_version=VERSION, polling=False)


def refused(sdk: Any, row: dict[str, Any]) -> str:
    with pytest.raises(HttpResponseError) as caught:
        put(sdk, row)
    assert caught.value.error is not None
    return str(caught.value.error.code)


def with_definition(change: Any) -> dict[str, Any]:
    row = deepcopy(body())
    change(row["properties"]["definition"])
    return row


def test_a_workflow_is_returned_with_what_logic_apps_adds(sdk: Any) -> None:
    put(sdk, body())
    found = sdk.resources.resources.get_by_id(WORKFLOW, api_version=VERSION).as_dict()
    there = found["properties"]["definition"]
    assert (there["parameters"], there["outputs"]) == ({}, {})
    assert there["triggers"]["end"]["evaluatedRecurrence"]["frequency"] == "Minute"
    listed = list(
        sdk.resources.resources.list_by_resource_group(
            "g", filter="resourceType eq 'Microsoft.Logic/workflows'"
        )
    )
    assert [row.name for row in listed] == ["w"]
    sdk.resources.resources.begin_delete_by_id(WORKFLOW, api_version=VERSION, polling=False)
    with pytest.raises(HttpResponseError):
        sdk.resources.resources.get_by_id(WORKFLOW, api_version=VERSION)


def test_a_provider_that_is_not_registered_is_refused(process: Azure, sdk: Any) -> None:
    process.control(unregistered=["Microsoft.Logic"])
    assert refused(sdk, body()) == "MissingSubscriptionRegistration"


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.pop("$schema"),
        lambda made: made.update({"$schema": "https://example.com"}),
        lambda made: made.pop("contentVersion"),
        lambda made: made["triggers"]["end"]["recurrence"].update(frequency="Minutes"),
        lambda made: made["triggers"]["end"]["recurrence"].update(interval=0),
        lambda made: made["triggers"]["end"]["recurrence"].update(startTime="tomorrow"),
        lambda made: made["triggers"]["end"]["recurrence"].update(start="2100-01-01T00:00:00Z"),
        lambda made: made["actions"]["delete_gpu1"]["inputs"].pop("uri"),
        lambda made: made["actions"]["delete_gpu1"]["inputs"].update(colour="red"),
        lambda made: made["actions"]["delete_gpu1"].update(runAfter={"other": ["Succeeded"]}),
        lambda made: made["actions"]["delete_gpu1"].update(operationOptions="Quick"),
        lambda made: made["actions"].update({"a/b": made["actions"]["delete_gpu1"]}),
    ],
)
def test_definitions_that_are_wrong_are_refused(sdk: Any, change: Any) -> None:
    assert refused(sdk, with_definition(change)) == "InvalidTemplate"


def test_an_identity_must_exist_and_be_that_of_the_workflow(sdk: Any) -> None:
    other = IDENTITY.replace("/end", "/other")
    missing = {"type": "UserAssigned", "userAssignedIdentities": {other: {}}}
    assert refused(sdk, body(identity=missing)) == "FailedIdentityOperation"
    assert refused(sdk, body(identity={"type": "None"})) == "WorkflowManagedIdentityNotSpecified"
    assert refused(sdk, body(properties={"state": "Enabled"})) == "WorkflowDefinitionMissing"
    asleep = {**body()["properties"], "state": "Asleep"}
    assert refused(sdk, body(properties=asleep)) == "InvalidWorkflowProperty"
