"""Logic Apps' workflows: what is refused, and the calls of a recurrence."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from cloudrec.providers.azure.api import models
from cloudrec.providers.azure.nodes.end_workflow import EndCalls, fixed, movable
from tests.contract.azure.support import Site, fresh
from tests.sandbox.azure.support import Azure, stand_in

SUBSCRIPTION = "/subscriptions/00000000-0000-4000-8000-000000000001"
GROUP = f"{SUBSCRIPTION}/resourceGroups/g"
WORKFLOW = f"{GROUP}/providers/Microsoft.Logic/workflows/w"
IDENTITY = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/end"
CLUSTER = f"{GROUP}/providers/Microsoft.ContainerService/managedClusters/c"
VERSION = "2019-05-01"
CALLS = EndCalls(
    arm="https://management.azure.com", cluster=CLUSTER, pools=("gpu1", "gpu2"), identity=IDENTITY
)


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
    made = fixed(CALLS, expires="2100-01-01T00:00:00Z")
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


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["parameters"]["end"].pop("defaultValue"),
        lambda made: made["actions"]["take_end"].update(runAfter={"read_end": ["Done"]}),
        lambda made: made["actions"]["take_end"].update(runAfter={"read_end": []}),
        lambda made: made["actions"]["take_end"].update(runAfter={"delete_gpu1": ["Succeeded"]}),
        lambda made: made["actions"]["read_end"].update(runAfter={"end_nodes": ["Succeeded"]}),
        lambda made: made["actions"]["take_end"].update(runAfter={}),  # it uses what was not read yet
        lambda made: made["actions"]["take_end"].update(inputs="@ticks(body('other'))"),
        lambda made: made["actions"]["take_end"].update(inputs="@ticks(body('read_end')"),
        lambda made: made["actions"]["end_nodes"].update(expression="@equals(parameters('other'), 1)"),
        lambda made: made["actions"]["end_nodes"].pop("expression"),
        lambda made: made["actions"]["end_nodes"].pop("actions"),
        lambda made: made["actions"]["wait"]["inputs"]["interval"].update(unit="Minutes"),
        lambda made: made["actions"]["wait"]["inputs"]["interval"].update(count=0),
        lambda made: made["actions"]["read_end"]["inputs"]["retryPolicy"].update(interval="PT1S"),
        lambda made: made["actions"]["read_end"]["inputs"]["retryPolicy"].update(count=91),
        lambda made: made["actions"].update(delete_gpu1=made["actions"]["wait"]),  # a name that is used
    ],
)
def test_definitions_with_conditions_that_are_wrong_are_refused(sdk: Any, change: Any) -> None:
    row = movable_body()
    change(row["properties"]["definition"])
    assert refused(sdk, row) == "InvalidTemplate"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("formatdatetime", lambda made: made["take_end"].update(inputs="@formatDateTime('x')")),
        ("a format of utcNow()", lambda made: made["take_end"].update(inputs="@utcNow('o')")),
        ("within a text", lambda made: made["take_end"].update(inputs="at @{utcNow()}")),
        ("'Until'", lambda made: made["take_end"].update(type="Until")),
        ("exponential", lambda made: made["read_end"]["inputs"].update(retryPolicy={"type": "exponential"})),
        ("until", lambda made: made["wait"].update(inputs={"until": {"timestamp": "x"}})),
        ("'contains'", lambda made: made["end_nodes"].update(expression={"contains": ["a", "b"]})),
        ("trackedProperties", lambda made: made["wait"].update(trackedProperties={})),
    ],
)
def test_what_is_not_supported_is_named(sdk: Any, name: str, change: Any) -> None:
    row = movable_body()
    change(row["properties"]["definition"]["actions"])
    with pytest.raises(HttpResponseError, match="NotImplemented") as caught:
        put(sdk, row)
    assert name in str(caught.value)


def movable_body() -> dict[str, Any]:
    end = "2100-01-01T00:00:00Z"
    made = movable(CALLS, workflow=WORKFLOW, expires=end, limit=None)
    return deepcopy(body(properties={"state": "Enabled", "definition": made}))


def test_tags_at_a_scope_are_merged_replaced_and_deleted(sdk: Any) -> None:
    put(sdk, body(tags={"a": "1", "b": "2"}))
    tags = sdk.resources.tags

    def patch(operation: str, **given: str) -> dict[str, str]:
        change = models.resources.TagsPatchResource(
            operation=operation, properties=models.resources.Tags(tags=given)
        )
        tags.begin_update_at_scope(WORKFLOW, change, polling=False)
        found: dict[str, str] = tags.get_at_scope(WORKFLOW).properties.tags
        assert sdk.resources.resources.get_by_id(WORKFLOW, api_version=VERSION).tags == found
        return found

    assert patch("Merge", B="3", c="4") == {"a": "1", "b": "3", "c": "4"}
    assert patch("Delete", a="1", b="other") == {"b": "3", "c": "4"}
    assert patch("Replace", d="5") == {"d": "5"}
    with pytest.raises(HttpResponseError, match="InvalidTagCount"):
        patch("Merge", **{f"tag{number}": "x" for number in range(50)})
    with pytest.raises(HttpResponseError, match="InvalidRequestContent"):
        patch("Add", e="6")
    with pytest.raises(HttpResponseError, match="ResourceNotFound"):
        tags.get_at_scope(f"{WORKFLOW}other")
