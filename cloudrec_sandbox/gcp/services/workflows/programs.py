"""Programs of Workflows: what is refused when one is deployed, before any execution.

Written from the Workflows syntax reference. Steps that this stand-in does not have are refused by name.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import yaml

from cloudrec_sandbox.gcp.services.workflows import expressions
from cloudrec_sandbox.gcp.services.workflows.errors import DeploymentError, NotImplementedHereError

Steps = list[dict[str, dict[str, Any]]]

CALLS = ("http.delete", "http.get", "http.patch", "http.post", "http.put", "http.request", "sys.sleep")
PREDICATES = ("${http.default_retry_predicate}", "${retry.always}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The fields of each kind of step; the first one names the kind.
_KINDS = {
    "assign": ("assign",),
    "call": ("call", "args", "result"),
    "for": ("for",),
    "return": ("return",),
    "steps": ("steps",),
    "switch": ("switch",),
    "try": ("try", "retry", "except"),
}
_ELSEWHERE = ("next", "parallel", "raise")
_ARGUMENTS = ("url", "method", "auth", "body", "headers", "query", "timeout")
_BRANCH = ("condition", "return", "steps")
_MOST_ASSIGNMENTS = 50


@lru_cache
def read(source: str) -> Steps:
    """Return the steps of the main workflow of a source in YAML or JSON; DeploymentError if it is refused."""
    try:
        document = json.loads(source) if source.startswith("{") else yaml.safe_load(source)
    except ValueError as error:
        raise DeploymentError(f"the source is no JSON: {error}") from error
    except yaml.YAMLError as error:
        raise DeploymentError(f"the source is neither YAML nor JSON: {error}") from error
    if isinstance(document, list):
        document = {"main": {"steps": document}}
    if not isinstance(document, dict) or "main" not in document:
        raise DeploymentError("the source has no main workflow")
    if len(document) > 1:
        raise NotImplementedHereError("a subworkflow")
    main = _map(document["main"], ("params", "steps"), "main")
    scope = set(main.get("params", ()))
    steps: Any = main.get("steps")
    _steps(steps, scope, set())
    found: Steps = steps
    return found


def _map(value: Any, fields: tuple[str, ...], where: str) -> dict[str, Any]:  # noqa: ANN401 - YAML
    if not isinstance(value, dict):
        raise DeploymentError(f"{where} must be a map")
    if unknown := sorted(set(value) - set(fields)):
        raise DeploymentError(f"unexpected entry '{unknown[0]}' in {where}")
    return value


def _steps(steps: Any, scope: set[str], seen: set[str]) -> None:  # noqa: ANN401 - YAML
    """Check a list of steps; `scope` gets the variables that they make, `seen` the names of steps."""
    if not isinstance(steps, list) or not steps:
        raise DeploymentError("steps must be a list that is not empty")
    for entry in steps:
        if not isinstance(entry, dict) or len(entry) != 1:
            raise DeploymentError("a step must be a map with one entry, its name")
        ((name, step),) = entry.items()
        if name in seen:
            raise DeploymentError(f"the step '{name}' is declared twice")
        seen.add(name)
        _step(name, step, scope, seen)


def _step(name: str, step: Any, scope: set[str], seen: set[str]) -> None:  # noqa: ANN401 - YAML
    if not isinstance(step, dict):
        raise DeploymentError(f"the step '{name}' must be a map")
    if found := [word for word in _ELSEWHERE if word in step]:
        raise NotImplementedHereError(f"'{found[0]}' in the step '{name}'")
    kind = next((kind for kind in _KINDS if kind in step), "")
    if not kind:
        raise DeploymentError(f"the step '{name}' does nothing")
    _map(step, _KINDS[kind], f"the step '{name}'")
    _CHECKS[kind](name, step, scope, seen)


def _assign(name: str, step: dict[str, Any], scope: set[str], _seen: set[str]) -> None:
    entries = step["assign"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= _MOST_ASSIGNMENTS:
        raise DeploymentError(f"the step '{name}' must assign 1 to {_MOST_ASSIGNMENTS} variables")
    for entry in entries:
        ((variable, value),) = entry.items()
        if not _NAME.fullmatch(variable):
            raise NotImplementedHereError(f"the assignment to '{variable}'")
        _value(value, scope)
        scope.add(variable)


def _call(name: str, step: dict[str, Any], scope: set[str], _seen: set[str]) -> None:
    called, args = step["call"], step.get("args", {})
    if called not in CALLS:
        raise NotImplementedHereError(f"the call of {called}")
    _map(args, ("seconds",) if called == "sys.sleep" else _ARGUMENTS, f"the arguments of '{name}'")
    if called.startswith("http.") and "url" not in args:
        raise DeploymentError(f"the step '{name}' calls {called} without a url")
    _value(args, scope)
    if step.get("result"):
        scope.add(step["result"])


def _for(name: str, step: dict[str, Any], scope: set[str], seen: set[str]) -> None:
    loop = _map(step["for"], ("value", "in", "steps"), f"the loop '{name}'")
    _value(loop.get("in"), scope)
    # What is made in a loop is unknown after it.
    _steps(loop.get("steps"), {*scope, str(loop.get("value"))}, seen)


def _return(_name: str, step: dict[str, Any], scope: set[str], _seen: set[str]) -> None:
    _value(step["return"], scope)


def _nested(_name: str, step: dict[str, Any], scope: set[str], seen: set[str]) -> None:
    _steps(step["steps"], scope, seen)


def _switch(name: str, step: dict[str, Any], scope: set[str], seen: set[str]) -> None:
    if not isinstance(step["switch"], list):
        raise DeploymentError(f"the switch '{name}' must be a list of conditions")
    for branch in step["switch"]:
        found = _map(branch, (*_BRANCH, "next"), f"the switch '{name}'")
        if "next" in found:
            raise NotImplementedHereError(f"'next' in the switch '{name}'")
        _value(found.get("condition"), scope)
        if "steps" in found:
            _steps(found["steps"], scope, seen)
        else:
            _value(found.get("return"), scope)


def _try(name: str, step: dict[str, Any], scope: set[str], seen: set[str]) -> None:
    body = step["try"]
    if "steps" in body:
        _steps(_map(body, ("steps",), f"the try of '{name}'")["steps"], scope, seen)
    else:
        _step(f"{name}.try", body, scope, seen)
    if "retry" in step:
        retry = _map(step["retry"], ("predicate", "max_retries", "backoff"), f"the retry of '{name}'")
        if retry.get("predicate") not in PREDICATES:
            raise NotImplementedHereError(f"the retry predicate {retry.get('predicate')}")
        _map(
            retry.get("backoff", {}), ("initial_delay", "max_delay", "multiplier"), f"the backoff of '{name}'"
        )
    if "except" in step:
        handler = _map(step["except"], ("as", "steps"), f"the except of '{name}'")
        # As in a loop.
        _steps(handler.get("steps"), {*scope, str(handler.get("as"))}, seen)


def _value(value: Any, scope: set[str]) -> None:  # noqa: ANN401 - YAML
    """Check the expressions in a value: their syntax, and that their variables exist."""
    if isinstance(value, dict):
        for each in value.values():
            _value(each, scope)
    elif isinstance(value, list):
        for each in value:
            _value(each, scope)
    elif expressions.is_expression(value):
        if unknown := sorted(expressions.names(value) - scope):
            raise DeploymentError(f"unrecognized symbol '{unknown[0]}'")
    elif isinstance(value, str) and "${" in value:
        raise NotImplementedHereError(f"an expression within the text {value!r}")


_CHECKS = {
    "assign": _assign,
    "call": _call,
    "for": _for,
    "return": _return,
    "steps": _nested,
    "switch": _switch,
    "try": _try,
}
