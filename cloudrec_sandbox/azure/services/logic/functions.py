"""The functions of expressions that this stand-in has.

Source: "Reference guide to workflow expression functions".
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.services.logic import expressions
from cloudrec_sandbox.azure.services.logic.expressions import EvaluationError, Literal, Node
from cloudrec_sandbox.azure.services.logic.refusals import absent, invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

_EPOCH = datetime(1, 1, 1, tzinfo=UTC)
_OF_ACTIONS = frozenset({"actions", "body", "outputs"})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What expressions know of a run.

    Attributes:
        now: the time, in seconds since the epoch.
        parameters: the parameters' values.
        results: by action that has ended: its name, status and outputs, as `actions()` returns them.
    """

    now: float
    parameters: Mapping[str, Any]
    results: Mapping[str, Mapping[str, Any]]


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def function(_: Scope, one: object, other: object) -> bool:
        kinds = {_kind(each) for each in (one, other)}
        if len(kinds) > 1 or not kinds <= {"number", "string"}:
            raise EvaluationError(f"parameters of types {', '.join(sorted(kinds))} are not compared")
        return compare(one, other)

    return function


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string" if isinstance(value, str) else "other"


def _truths(values: tuple[object, ...]) -> list[bool]:
    found = [value for value in values if isinstance(value, bool)]
    if len(found) < max(1, len(values)):
        raise EvaluationError("a parameter is no boolean")
    return found


def _least(_: Scope, *values: object) -> object:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < max(1, len(values)):
        raise EvaluationError("a parameter of 'min' is no number")
    return min(numbers)


def _ticks(_: Scope, moment: object) -> int:
    """Return the intervals of 100 nanoseconds since the year 1."""
    try:
        found = datetime.fromisoformat(moment if isinstance(moment, str) else "")
    except ValueError as error:
        raise EvaluationError(f"'{moment}' is no timestamp") from error
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH
    return since // timedelta(microseconds=1) * 10


def _utc_now(scope: Scope) -> str:
    return f"{datetime.fromtimestamp(scope.now, UTC):%Y-%m-%dT%H:%M:%S.%f}0Z"


def _action(scope: Scope, name: str) -> Mapping[str, Any]:
    found = scope.results.get(name)
    if found is None:
        raise EvaluationError(f"the action '{name}' has not ended")
    return found


def _outputs(scope: Scope, name: str) -> Any:  # noqa: ANN401 - JSON
    return _action(scope, name).get("outputs")


def _body(scope: Scope, name: str) -> Any:  # noqa: ANN401 - JSON
    outputs = _outputs(scope, name)
    return outputs.get("body") if isinstance(outputs, dict) else None


def _coalesce(_: Scope, *values: object) -> object:
    return next((value for value in values if value is not None), None)


KNOWN: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "actions": _action,
        "and": lambda _, *values: all(_truths(values)),
        "body": _body,
        "coalesce": _coalesce,
        "equals": lambda _, one, other: bool(one == other),
        "greater": _compared(operator.gt),
        "greaterorequals": _compared(operator.ge),
        "less": _compared(operator.lt),
        "lessorequals": _compared(operator.le),
        "min": _least,
        "not": lambda _, value: not _truths((value,))[0],
        "or": lambda _, *values: any(_truths(values)),
        "outputs": _outputs,
        "parameters": lambda scope, name: scope.parameters[name],
        "ticks": _ticks,
        "utcnow": _utc_now,
    }
)


def value(found: Any, scope: Scope) -> Any:  # noqa: ANN401 - JSON
    """Return a value of a definition with its expressions evaluated; EvaluationError if one has no value.

    An object with the name of a function and a list of arguments is the designer's form of a condition.
    """
    if isinstance(found, dict):
        if _is_condition(found):
            (name, arguments) = next(iter(found.items()))
            given = arguments if isinstance(arguments, list) else [arguments]
            return KNOWN[name.lower()](scope, *[value(each, scope) for each in given])
        return {name: value(each, scope) for name, each in found.items()}
    if isinstance(found, list):
        return [value(each, scope) for each in found]
    if not expressions.is_expression(found):
        return found
    return expressions.evaluate(expressions.parse(found), KNOWN, scope)


def _is_condition(found: Mapping[str, Any]) -> bool:
    return len(found) == 1 and next(iter(found)).lower() in KNOWN


def check(found: Any, *, user: str, before: AbstractSet[str], parameters: AbstractSet[str]) -> None:  # noqa: ANN401 - JSON
    """Refuse the expressions of an action that Logic Apps refuses.

    Args:
        found: the action's inputs or its condition.
        user: the action.
        before: the actions that end before it, by `runAfter`.
        parameters: the names of the definition's parameters.
    """
    for node in _nodes(found):
        for call in expressions.functions(node):
            if call.name not in KNOWN:
                raise absent(f"the function {call.name}()")
            first = call.arguments[0] if call.arguments else None
            if call.name == "utcnow" and call.arguments:
                raise absent("a format of utcNow()")
            if call.name in _OF_ACTIONS and not _names(first, before):
                raise invalid(
                    f"The inputs of action '{user}' refer to an action that does not end before it by "
                    f"'runAfter': {call.name}({first})"
                )
            if call.name == "parameters" and not _names(first, parameters):
                raise invalid(f"The action '{user}' refers to a parameter that is not defined: {first}")


def _names(node: Node | None, known: AbstractSet[str]) -> bool:
    return isinstance(node, Literal) and node.value in known


def _nodes(found: Any) -> Iterator[Node]:  # noqa: ANN401 - JSON
    if isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _nodes(each)
    elif expressions.is_expression(found):
        yield expressions.parse(found)
