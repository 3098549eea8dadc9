"""The workflow that ends a cluster's GPU nodes, in the Workflow Definition Language."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.providers.azure.nodes import end_workflow
from cloudrec.providers.azure.nodes.end_workflow import EndCalls, fixed, movable

END, LIMIT = "2026-12-01T03:00:00+02:00", "2026-12-02T00:00:00Z"
IN_UTC = "2026-12-01T01:00:00Z"
ENDED = ["Succeeded", "Failed", "Skipped", "TimedOut"]
CALLS = EndCalls(arm="https://arm", cluster="/c", pools=("gpu2", "gpu1"), identity="/i")
OWN = {"type": "ManagedServiceIdentity", "identity": "/i", "audience": "https://arm/"}


def moving(limit: str | None = None, **changes: Any) -> dict[str, Any]:
    return movable(CALLS, **{"workflow": "/w", "expires": END, "limit": limit, **changes})


def test_an_end_that_stays_begins_then_and_repeats_its_calls_for_a_day() -> None:
    made = fixed(CALLS, expires=END)
    assert made["parameters"] == {}
    assert made["triggers"]["end"]["recurrence"] == {
        "frequency": "Minute",
        "interval": 1,
        "startTime": IN_UTC,
        "endTime": "2026-12-02T01:00:00Z",
    }
    assert list(made["actions"]) == ["delete_gpu1", "delete_gpu2"]


def test_an_end_that_moves_is_read_from_now_on_and_decides_by_the_tag_or_else_by_the_definition() -> None:
    made = moving()
    recurrence = made["triggers"]["end"]["recurrence"]
    assert recurrence == {"frequency": "Minute", "interval": 2, "startTime": "2026-01-01T00:00:00Z"}
    assert made["parameters"] == {"end": {"type": "String", "defaultValue": IN_UTC}}
    actions = made["actions"]
    assert actions["read_end"]["inputs"] == {
        "method": "GET",
        "uri": "https://arm/w/providers/Microsoft.Resources/tags/default?api-version=2021-04-01",
        "authentication": OWN,
        "retryPolicy": {"type": "fixed", "count": 4, "interval": "PT15S"},
    }
    assert actions["take_end"] == {
        "type": "Compose",
        "runAfter": {"read_end": ["Succeeded"]},
        "inputs": "@ticks(body('read_end')?['properties']?['tags']?['cloudrec-expires'])",
    }
    assert actions["wait"]["runAfter"] == {"read_end": ["Failed", "TimedOut"]}
    assert actions["read_again"]["runAfter"] == {"wait": ["Succeeded"]}
    decided = actions["end_nodes"]
    # It runs whatever has failed before: a cluster's end must not depend on it.
    assert decided["runAfter"] == {"take_end": ENDED, "take_again": ENDED}
    assert decided["expression"] == (
        "@greaterOrEquals(ticks(utcNow()), coalesce(actions('take_again')?['outputs'], "
        "actions('take_end')?['outputs'], ticks(parameters('end'))))"
    )
    assert decided["actions"] == fixed(CALLS, expires=END)["actions"]


def test_the_end_of_a_ttl_counts_whatever_the_tag_is() -> None:
    made = moving(LIMIT)
    assert made["parameters"]["limit"] == {"type": "String", "defaultValue": LIMIT}
    assert ", min(coalesce(" in made["actions"]["end_nodes"]["expression"]
    assert made["actions"]["end_nodes"]["expression"].endswith(", ticks(parameters('limit'))))")


@pytest.mark.parametrize("made", [fixed(CALLS, expires=END), moving()])
def test_the_calls_of_either_form_are_read_and_replaced(made: dict[str, Any]) -> None:
    calls = end_workflow.deletions(made)
    assert list(calls) == ["delete_gpu1", "delete_gpu2"]
    assert end_workflow.with_deletions(made, calls) == made
    one = {"delete_gpu3": calls["delete_gpu1"]}
    assert end_workflow.deletions(end_workflow.with_deletions(made, one)) == one


def test_another_form_differs_and_another_end_of_the_definition_can_be_left_out() -> None:
    other = moving(expires="2027-01-01T00:00:00Z")
    assert other != moving()
    assert end_workflow.with_end(other, moving()) == moving()
    assert end_workflow.with_end(fixed(CALLS, expires=END), moving()) == fixed(CALLS, expires=END)
    assert end_workflow.with_end(moving(LIMIT), moving()) != moving()


@pytest.mark.parametrize("damaged", [None, "text", {}, {"actions": []}, {"actions": {"end_nodes": 1}}])
def test_a_definition_that_others_have_damaged_has_no_calls_and_no_start(damaged: Any) -> None:
    assert end_workflow.deletions(damaged) == {}
    assert end_workflow.start(damaged) == ""


def test_the_executions_of_an_hour_are_those_of_a_run_that_reads_the_end() -> None:
    skipped = {"wait", "read_again", "take_again"}
    ran = [name for name in moving()["actions"] if name not in skipped]
    assert (1 + len(ran)) * 30 == end_workflow.EXECUTIONS_H
    assert end_workflow.start(moving()) == ""
    assert end_workflow.start(fixed(CALLS, expires=END)) == IN_UTC
