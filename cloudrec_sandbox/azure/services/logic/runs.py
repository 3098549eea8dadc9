"""Runs of workflows: which action runs when, what it returns, and how often it is repeated.

An action runs when all actions of its `runAfter` have ended, each in one of the given statuses; it is skipped
when one has ended otherwise. A failed evaluation of an expression fails its action. An HTTP action whose
answer is 408, 429 or 5xx is repeated by its retry policy ("Handle errors and exceptions"). An If has failed
when one of its actions has. A run that has begun keeps its definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.logic import calls, functions
from cloudrec_sandbox.azure.services.logic.definitions import Step, parameters, pauses, steps, wait_s
from cloudrec_sandbox.azure.services.logic.expressions import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

_REPEATED = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_RUNNING = "Running"
# What a resource's facts have of its runs: those that have not ended, by number; the last one that has; the
# number of the next one.
_OPEN, LAST, _NEXT = "open_runs", "last_run", "next_run"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a run waits for: an action's call, after `done` others, or the end of a Wait, without inputs."""

    number: int
    name: str
    done: int = 0
    inputs: Mapping[str, Any] = field(default_factory=dict)


def begin(world: World, workflow: Resource) -> None:
    """Begin a run."""
    number = int(workflow.facts.get(_NEXT, 0)) + 1
    workflow.facts[_NEXT] = number
    run = {"definition": workflow.properties["definition"], "results": {}, "waiting": [], "tries": 0}
    workflow.facts.setdefault(_OPEN, {})[number] = run
    _advance(world, workflow, number)


def client_now(world: World, workflow: Resource) -> float:
    """Return the time for a workflow, as a client's clock would show it.

    Time that is skipped in a stand-in that runs faster than its clients' clocks counts for them, too.
    """
    if not world.clock.real_times:
        return world.now()
    virtual, shown = workflow.facts["anchor"]
    return float(shown) + (world.now() - float(virtual)) / world.clock.speed


def executions(workflow: Resource) -> int:
    """Return the executions that the last run was billed for: its trigger and each action that ran."""
    last: Mapping[str, Any] = workflow.facts.get(LAST) or {}
    ran = [result for result in (last.get("results") or {}).values() if result["status"] != "Skipped"]
    return 1 + len(ran) + int(last.get("tries", 0))


def _advance(world: World, workflow: Resource, number: int) -> None:
    """Run every action that can run now; end the run if none is left."""
    run = workflow.facts[_OPEN][number]
    all_steps, results = steps(run["definition"]), run["results"]
    while True:
        ready = [
            step
            for step in all_steps.values()
            if step.name not in results and step.name not in run["waiting"] and _is_due(step, results)
        ]
        for step in ready:
            _begin_step(world, workflow, number, step)
        ended = [_end_if(step, all_steps, results) for step in all_steps.values()]
        if not ready and not any(ended):
            break
    if all(name in results and results[name]["status"] != _RUNNING for name in all_steps):
        del workflow.facts[_OPEN][number]
        workflow.facts[LAST] = {"results": results, "tries": run["tries"]}


def _is_due(step: Step, results: Mapping[str, Any]) -> bool:
    """Return whether it is decided that an action runs or is skipped."""
    if step.parent and step.parent not in results:
        return False
    return all(other in results and results[other]["status"] != _RUNNING for other in step.after)


def _begin_step(world: World, workflow: Resource, number: int, step: Step) -> None:
    run = workflow.facts[_OPEN][number]
    results = run["results"]
    outer = results[step.parent] if step.parent else None
    # Of an If that has not run, or has failed to evaluate its condition, all actions are skipped.
    is_off = outer is not None and (outer["status"] != _RUNNING or outer["branch"] != step.branch)
    if is_off or any(results[other]["status"] not in statuses for other, statuses in step.after.items()):
        results[step.name] = _result(step.name, "Skipped")
        return
    scope = functions.Scope(
        now=client_now(world, workflow), parameters=parameters(run["definition"]), results=results
    )
    try:
        if step.action["type"] == "If":
            is_true = functions.value(step.action["expression"], scope)
            results[step.name] = {
                **_result(step.name, _RUNNING),
                "branch": "actions" if is_true is True else "else",
            }
        elif step.action["type"] == "Wait":
            run["waiting"].append(step.name)
            pause = wait_s(step.action["inputs"])
            world.after(pause, resume, workflow.id, Attempt(number=number, name=step.name))
        else:
            inputs = functions.value(step.action["inputs"], scope)
            if step.action["type"] == "Compose":
                results[step.name] = _result(step.name, "Succeeded", inputs)
            else:
                _call(world, workflow, Attempt(number=number, name=step.name, inputs=inputs))
    except EvaluationError:
        results[step.name] = _result(step.name, "Failed")


def _call(world: World, workflow: Resource, attempt: Attempt) -> None:
    """Make the call of an HTTP action, and keep its result or plan its repetition."""
    run, name = workflow.facts[_OPEN][attempt.number], attempt.name
    outputs = calls.made(world, attempt.inputs)
    status, left = outputs["statusCode"], pauses(attempt.inputs)[attempt.done :]
    is_transient = status in _REPEATED or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if is_transient and left:
        run["tries"] += 1
        run["waiting"].append(name)
        world.after(left[0], resume, workflow.id, replace(attempt, done=attempt.done + 1))
        return
    ended = "Failed" if status >= HTTPStatus.BAD_REQUEST else "Succeeded"
    run["results"][name] = _result(name, ended, outputs)


def resume(world: World, id_: str, attempt: Attempt) -> None:
    """Continue a run after a pause: end a Wait, or repeat a call."""
    workflow = store(world).find(id_)
    if workflow is None or workflow.deleting or attempt.number not in workflow.facts.get(_OPEN, {}):
        return
    run = workflow.facts[_OPEN][attempt.number]
    run["waiting"].remove(attempt.name)
    if attempt.inputs:
        _call(world, workflow, attempt)
    else:
        run["results"][attempt.name] = _result(attempt.name, "Succeeded")
    _advance(world, workflow, attempt.number)


def _end_if(step: Step, all_steps: Mapping[str, Step], results: dict[str, Any]) -> bool:
    """End an If whose actions have all ended; return whether it has ended now."""
    if results.get(step.name, {}).get("status") != _RUNNING:
        return False
    inner = [each.name for each in all_steps.values() if each.parent == step.name]
    statuses = [results[name]["status"] if name in results else _RUNNING for name in inner]
    if _RUNNING in statuses:
        return False
    has_failed = bool({"Failed", "TimedOut"} & set(statuses))
    results[step.name] = _result(step.name, "Failed" if has_failed else "Succeeded")
    return True


def _result(name: str, status: str, outputs: Any = None) -> dict[str, Any]:  # noqa: ANN401 - JSON
    found = {"name": name, "status": status}
    return found if outputs is None else {**found, "outputs": outputs}
