"""Runs of workflows: conditions, the order of actions, repetitions, waits, and what is billed."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.engine import Engine
from cloudrec_sandbox.azure.services.logic import calls, functions, runs
from cloudrec_sandbox.azure.services.logic.expressions import EvaluationError
from cloudrec_sandbox.core.world import World

ID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Logic/workflows/w"
GET = {"method": "GET", "uri": "https://example.com/"}
NOW = 1_800_000_000.0  # in the year 2027
SCOPE = functions.Scope(
    now=NOW,
    parameters={"end": "it's"},
    results={"gone": {"name": "gone", "status": "Skipped"}, "read": {"outputs": {"body": {"x": [1]}}}},
)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("@greater(ticks(utcNow()), ticks('2020-01-01T00:00:00Z'))", True),
        ("@less(ticks(utcNow()), ticks('2020-01-01T00:00:00+01:00'))", False),
        ("@equals(ticks('1970-01-01T00:00:00Z'), 621355968000000000)", True),
        ({"and": [{"greater": [2, 1]}, {"not": {"equals": ["@parameters('end')", ""]}}]}, True),
        ({"or": [{"equals": [1, 2]}, {"less": ["a", "b"]}]}, True),
        ("@and(true, not(false), lessOrEquals(1, 1))", True),
        ("@equals(coalesce(null, parameters('end'), 'x'), 'it''s')", True),
        ("@equals(actions('gone')?['outputs']?['body']?.x, null)", True),
        ("@equals(body('gone'), null)", True),
        ("@equals(body('read')['x'], null)", False),
        ("@equals(min(3, 1, 2), 1)", True),
        ("@equals(actions('gone').status, 'Skipped')", True),
    ],
)
def test_conditions_have_the_values_of_the_language(condition: Any, *, found: bool) -> None:
    assert functions.value(condition, SCOPE) is found


@pytest.mark.parametrize(
    "text",
    [
        "@less(1, 'a')",
        "@ticks('soon')",
        "@ticks(null)",
        "@equals(body('gone')['x'], null)",
        "@equals('text'?['x'], null)",
        "@and(1, true)",
        "@min('a')",
        "@utcNow('o', 'x')",
        "@body('other')",
    ],
)
def test_an_expression_without_a_value_fails(text: str) -> None:
    with pytest.raises(EvaluationError):
        functions.value(text, SCOPE)


def begun(actions: dict[str, Any]) -> World:
    """A world whose virtual time only advances by order, with a run of these actions."""
    world = Engine().world
    world.clock.real_times = False
    world.clock.speed = 1e-9
    world.settle()
    workflow = Resource(id=ID, type="Microsoft.Logic/workflows", document={}, made_at=0.0, changed_at=0.0)
    workflow.properties["definition"] = {"actions": actions}
    store(world).add(workflow)
    runs.begin(world, workflow)
    return world


def statuses(world: World) -> dict[str, str]:
    """The statuses of the last run that has ended; empty if none has."""
    last = store(world).resources[ID.lower()].facts.get(runs.LAST) or {"results": {}}
    return {name: result["status"] for name, result in last["results"].items()}


def passed(world: World, seconds: float) -> dict[str, str]:
    world.clock.advance(seconds)
    world.settle()
    return statuses(world)


def compose(value: Any, **after: list[str]) -> dict[str, Any]:
    return {"type": "Compose", "inputs": value, "runAfter": after}


def chosen(condition: Any) -> dict[str, Any]:
    return {
        "type": "If",
        "expression": condition,
        "actions": {"yes": compose(1), "fails": compose("@ticks('soon')", yes=["Succeeded"])},
        "else": {"actions": {"no": compose(1)}},
    }


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("@true", {"chosen": "Failed", "yes": "Succeeded", "fails": "Failed", "no": "Skipped"}),
        ("@false", {"chosen": "Succeeded", "yes": "Skipped", "fails": "Skipped", "no": "Succeeded"}),
        ("@ticks('soon')", {"chosen": "Failed", "yes": "Skipped", "fails": "Skipped", "no": "Skipped"}),
    ],
)
def test_a_condition_chooses_the_branch_that_runs(condition: str, found: dict[str, str]) -> None:
    world = begun({"chosen": chosen(condition)})
    assert statuses(world) == found
    ran = [status for status in found.values() if status != "Skipped"]
    assert runs.executions(store(world).resources[ID.lower()]) == 1 + len(ran)


def test_an_action_runs_after_others_in_the_given_statuses_alone() -> None:
    world = begun(
        {
            "late": compose("@outputs('good')", good=["Succeeded"], bad=["Failed", "TimedOut"]),
            "good": compose(1),
            "bad": compose("@ticks('soon')"),
            "not": compose(1, bad=["Succeeded"]),
            "then": compose(1, **{"not": ["Skipped"]}),
        }
    )
    assert statuses(world) == {
        "good": "Succeeded",
        "bad": "Failed",
        "late": "Succeeded",
        "not": "Skipped",
        "then": "Succeeded",
    }


def read(**policy: Any) -> dict[str, Any]:
    return {"type": "Http", "inputs": {**GET, "retryPolicy": policy}}


def test_a_call_is_repeated_by_its_policy_and_each_repetition_is_billed() -> None:
    world = begun({"wait": {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Minute"}}}})
    assert statuses(world) == {}
    assert passed(world, 59) == {}
    assert passed(world, 1) == {"wait": "Succeeded"}
    workflow = store(world).resources[ID.lower()]
    workflow.properties["definition"] = {"actions": {"read": read(type="fixed", count=2, interval="PT10S")}}
    world.state(calls.Ordered).statuses = {"GET": [503, 429, 408, 200]}
    runs.begin(world, workflow)
    assert passed(world, 19) == {"wait": "Succeeded"}
    assert passed(world, 1) == {"read": "Failed"}  # the third answer, 408
    assert runs.executions(workflow) == 1 + 3


@pytest.mark.parametrize(("status", "policy"), [(403, "fixed"), (409, "fixed"), (503, "none")])
def test_other_refusals_and_calls_without_a_policy_are_not_repeated(status: int, policy: str) -> None:
    world = begun({"one": compose(1)})
    workflow = store(world).resources[ID.lower()]
    workflow.properties["definition"] = {"actions": {"read": read(type=policy, count=4, interval="PT10S")}}
    world.state(calls.Ordered).statuses = {"GET": [status, 200]}
    runs.begin(world, workflow)
    assert statuses(world) == {"read": "Failed"}
