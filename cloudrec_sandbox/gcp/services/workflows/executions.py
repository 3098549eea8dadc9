"""Workflow Executions v1: create, get, list and cancel, and the executions themselves, as their account.

Written from google/cloud/workflows/executions/v1/executions.proto of googleapis. Google keeps executions for
90 days; here each workflow has its last 100.

`workflow_faults` of /_control: [{"method": "GET", "times": 3, "status": 503}]: the next calls of HTTP that
executions make by this method fail with this status. An internal step costs 0.01 USD per 1,000, after 5,000
free ones a month (cloud.google.com/workflows/pricing).
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from cloudrec_sandbox.core.clock import as_datetime
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest, setting
from cloudrec_sandbox.gcp.resources import paging, store
from cloudrec_sandbox.gcp.services import outbound
from cloudrec_sandbox.gcp.services.workflows import checks, programs
from cloudrec_sandbox.gcp.services.workflows.errors import ProgramError, of_http
from cloudrec_sandbox.gcp.services.workflows.interpreter import Done, Interpreter, Waiting
from cloudrec_sandbox.gcp.services.workflows.workflows import SERVICE as WORKFLOWS
from cloudrec_sandbox.gcp.services.workflows.workflows import need

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_SERVICE = "workflowexecutions"
_MANY = "/v1/{parent=projects/*/locations/*/workflows/*}/executions"
_ONE = "/v1/{name=projects/*/locations/*/workflows/*/executions/*}"
_FIELDS = ("argument", "callLogLevel", "labels")
_MOST_ARGUMENT, _KEPT = 32 * 1024, 100
_STEP_USD, _FREE_STEPS = 0.01 / 1000, 5000


@dataclass
class Execution:
    """One execution: as the service shows it, its account, its source, and what it has done."""

    document: dict[str, Any]
    account: str
    source: str
    record: list[Done] = field(default_factory=list)


@dataclass
class Executions:
    """The executions by workflow, the faults of their calls, and the steps of each month."""

    kept: dict[str, deque[Execution]] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)


class _Outside:
    """What an execution reaches, with its account's permissions."""

    def __init__(self, world: World, account: str) -> None:
        self.world, self.account = world, account

    def now(self) -> float:
        return self.world.client_now()

    def http(self, method: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        _fail(self.world, method)
        url = str(arguments["url"])
        if query := arguments.get("query"):
            url = f"{url}?{urlencode(query)}"
        account = self.account if arguments.get("auth", {}).get("type") == "OAuth2" else ""
        body = json.dumps(arguments["body"]).encode() if "body" in arguments else b""
        headers = arguments.get("headers", {})
        try:
            answer = outbound.send(self.world, method, url, account=account, body=body, headers=headers)
        except GcpError as error:
            raise of_http(error) from error
        return {"body": answer, "code": 200, "headers": {"Content-Type": "application/json"}}


def _fail(world: World, method: str) -> None:
    """Raise the fault that the next call of this method is to have."""
    for fault in world.state(Executions).faults:
        if fault["method"] == method and fault["times"] > 0:
            fault["times"] -= 1
            raise of_http(GcpError("UNAVAILABLE", "an ordered fault", http=fault["status"]))


def _moment(world: World) -> str:
    return as_datetime(world.now()).isoformat().replace("+00:00", "Z")


@rest(
    _SERVICE,
    "projects.locations.workflows.executions.create",
    "POST",
    _MANY,
    body=dict,
    permission="workflows.executions.create",
)
def create(call: Call) -> dict[str, Any]:
    """Begin an execution of a workflow's latest revision."""
    workflow = need(call, call.params["parent"])
    checks.known(call.body, _FIELDS, "execution")
    if call.body.get("labels"):
        raise GcpError("UNIMPLEMENTED", "this stand-in has no labels of an execution")
    if len(str(call.body.get("argument", ""))) > _MOST_ARGUMENT:
        raise checks.invalid(f"The argument must have at most {_MOST_ARGUMENT} bytes.")
    name = f"{workflow.path}/executions/{uuid.uuid4()}"
    document = {name: call.body[name] for name in _FIELDS if call.body.get(name)}
    document |= {"name": name, "state": "ACTIVE", "startTime": _moment(call.world)}
    document["workflowRevisionId"] = workflow.document["revisionId"]
    execution = Execution(
        document, checks.email(workflow.document["serviceAccount"]), workflow.document["sourceContents"]
    )
    kept = call.world.state(Executions).kept.setdefault(workflow.path, deque(maxlen=_KEPT))
    kept.append(execution)
    call.world.after(0.0, run, name)
    return dict(document)


def find(world: World, name: str) -> Execution | None:
    """Return the execution with a name; None if it is not kept, or its workflow is gone."""
    workflow = name.rpartition("/executions/")[0]
    if store.find(world, WORKFLOWS, workflow) is None:
        return None
    kept = world.state(Executions).kept.get(workflow, ())
    return next((each for each in reversed(kept) if each.document["name"] == name), None)


def run(world: World, name: str) -> None:
    """Run an execution until it ends or waits."""
    execution = find(world, name)
    if execution is None or execution.document["state"] != "ACTIVE":
        return
    interpreter = Interpreter(_Outside(world, execution.account), execution.record)
    argument = json.loads(execution.document.get("argument") or "null")
    steps = programs.read(execution.source)
    try:
        result = interpreter.run(steps, {"args": argument})
    except Waiting as waiting:
        world.after(waiting.seconds, run, name)
        return
    except ProgramError as error:
        outcome = {"state": "FAILED", "error": {"payload": json.dumps(error.map)}}
    else:
        outcome = {"state": "SUCCEEDED", "result": json.dumps(result)}
    execution.document |= {**outcome, "endTime": _moment(world)}
    execution.record = []
    _bill(world, name.rpartition("/executions/")[0], interpreter.billed)


def _bill(world: World, workflow: str, steps: int) -> None:
    """Put the steps of an execution on the bill, if one is kept."""
    state, month = world.state(Executions), f"{as_datetime(world.now()):%Y-%m}"
    before = state.steps.get(month, 0)
    state.steps[month] = before + steps
    billed = max(0, before + steps - _FREE_STEPS) - max(0, before - _FREE_STEPS)
    if world.bill is not None and billed:
        world.bill.once("workflow-steps", workflow, billed * _STEP_USD)


def _need(call: Call) -> Execution:
    found = find(call.world, call.params["name"])
    if found is None:
        raise GcpError("NOT_FOUND", f"execution '{call.params['name']}' does not exist")
    return found


@rest(
    _SERVICE,
    "projects.locations.workflows.executions.get",
    "GET",
    _ONE,
    query=("view",),
    permission="workflows.executions.get",
)
def get(call: Call) -> dict[str, Any]:
    """Return one execution."""
    return dict(_need(call).document)


@rest(
    _SERVICE,
    "projects.locations.workflows.executions.list",
    "GET",
    _MANY,
    query=(*paging.QUERY, "view"),
    permission="workflows.executions.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the executions of a workflow, the latest first."""
    workflow = need(call, call.params["parent"])
    kept = call.world.state(Executions).kept.get(workflow.path, ())
    items, token = paging.page([dict(each.document) for each in reversed(kept)], call)
    return {"executions": items, **({"nextPageToken": token} if token else {})}


@rest(
    _SERVICE,
    "projects.locations.workflows.executions.cancel",
    "POST",
    f"{_ONE}:cancel",
    body=dict,
    permission="workflows.executions.cancel",
)
def cancel(call: Call) -> dict[str, Any]:
    """End an execution."""
    execution = _need(call)
    if execution.document["state"] != "ACTIVE":
        raise GcpError("FAILED_PRECONDITION", "Only an active execution can be cancelled.")
    execution.document |= {"state": "CANCELLED", "endTime": _moment(call.world)}
    return dict(execution.document)


def _write(world: World, faults: list[dict[str, Any]]) -> None:
    for fault in faults:
        if set(fault) != {"method", "times", "status"}:
            raise ValueError("a fault of a workflow's calls has method, times and status")
    world.state(Executions).faults = [dict(fault) for fault in faults]


setting("workflow_faults", read=lambda world: world.state(Executions).faults, write=_write)
