"""Expressions of the language, `${...}`: parsed when a workflow is deployed, and evaluated in an execution.

From "Expressions", "Data types, functions, operators" and "Standard library" of the Workflows reference. The
grammar that is read here is a part of Python's, which the language's operators and calls look like.
"""

from __future__ import annotations

import ast
import math
import operator
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.services.workflows.errors import (
    DeploymentError,
    NotImplementedHereError,
    ProgramError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST = 400  # characters of an expression
_CONSTANTS = {"true": True, "false": False, "null": None}
_CONSTANTS |= {name.upper(): value for name, value in _CONSTANTS.items()}
_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
}
_BLOCKING = ("http.", "sys.sleep", "sys.log", "events.", "googleapis.")


def is_expression(value: object) -> bool:
    """Return whether a value of a program is an expression."""
    return isinstance(value, str) and value.startswith("${") and value.endswith("}")


@lru_cache(maxsize=1000)
def parse(text: str) -> ast.expr:
    """Return the tree of `${...}`; DeploymentError for one that the language does not have."""
    inner = text[2:-1].strip()
    if len(inner) > _LONGEST:
        raise DeploymentError(f"the expression has {len(inner)} characters; the limit is {_LONGEST}")
    if "'" in inner:
        raise DeploymentError(f"error in expression '{inner}': a string must be in double quotes")
    try:
        tree = ast.parse(inner, mode="eval").body
    except SyntaxError as error:
        raise DeploymentError(f"error in expression '{inner}': {error.msg}") from error
    for node in ast.walk(tree):
        _check(node, inner)
    return tree


def _check(node: ast.AST, text: str) -> None:
    known = (
        *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Compare, ast.Name),
        *(ast.Attribute, ast.Subscript, ast.Constant, ast.Call, ast.Load, *_BINARY),
    )
    if not isinstance(node, known) or (isinstance(node, ast.Compare) and len(node.ops) != 1):
        raise DeploymentError(f"error in expression '{text}': {type(node).__name__} is not in the language")
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if name.startswith(_BLOCKING):
            raise DeploymentError(f"error in expression '{text}': the call of {name} is blocking")
        if name not in FUNCTIONS and name != "sys.now":
            raise NotImplementedHereError(f"the function {name} in an expression")


def names(text: str) -> set[str]:
    """Return the variables in an expression."""
    tree = parse(text)
    called = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Call) for part in _parts(node.func)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
    return {node.id for node in found} - set(_CONSTANTS)


def _parts(node: ast.expr) -> list[ast.AST]:
    return [node, *(_parts(node.value) if isinstance(node, ast.Attribute) else ())]


def dotted(node: ast.expr) -> str:
    """Return the name of a function: text.substring."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def evaluate(text: str, variables: Mapping[str, Any], now: Callable[[], float]) -> Any:  # noqa: ANN401 - JSON
    """Return the value of an expression; ProgramError if it has none.

    Args:
        text: the expression.
        variables: the variables in its scope.
        now: returns the time, in seconds since the epoch.
    """
    try:
        return _value(parse(text), variables, now)
    except TypeError as error:
        raise ProgramError("TypeError", str(error)) from error
    except ZeroDivisionError as error:
        raise ProgramError("ZeroDivisionError", str(error)) from error


def _value(node: ast.expr, variables: Mapping[str, Any], now: Callable[[], float]) -> Any:  # noqa: ANN401
    """Return the value of a node."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _CONSTANTS[node.id] if node.id in _CONSTANTS else variables[node.id]
    if isinstance(node, ast.BoolOp):
        return _logic(node, variables, now)
    operands = [_value(each, variables, now) for each in _operands(node)]
    if isinstance(node, ast.Attribute):
        return _member(operands[0], node.attr)
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        return now() if name == "sys.now" else FUNCTIONS[name](*operands)
    return _operated(node, operands)


def _operated(node: ast.expr, operands: list[Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the value of an operator."""
    if isinstance(node, ast.UnaryOp):
        return not _boolean(operands[0]) if isinstance(node.op, ast.Not) else -operands[0]
    if isinstance(node, ast.Subscript):
        return _member(*operands)
    symbol: ast.AST = node.ops[0] if isinstance(node, ast.Compare) else node.op  # type: ignore[attr-defined]  # of BinOp
    return _BINARY[type(symbol)](*operands)


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the nodes whose values a node combines."""
    if isinstance(node, ast.Attribute):
        return [node.value]
    if isinstance(node, ast.Subscript):
        return [node.value, node.slice]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Call):
        return node.args
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    return [node.left, node.right] if isinstance(node, ast.BinOp) else []


def _logic(node: ast.BoolOp, variables: Mapping[str, Any], now: Callable[[], float]) -> bool:
    """Return the value of `and` and `or`, which do not evaluate what decides nothing."""
    is_and = isinstance(node.op, ast.And)
    for each in node.values:
        if _boolean(_value(each, variables, now)) is not is_and:
            return not is_and
    return is_and


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ProgramError("TypeError", f"{value!r} is not a boolean")
    return value


def _member(whole: Any, key: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(whole, dict):
        if key not in whole:
            raise ProgramError("KeyError", f"key not found: {key}")
        return whole[key]
    if isinstance(whole, list) and isinstance(key, int):
        if not 0 <= key < len(whole):
            raise ProgramError("IndexError", f"index out of range: {key}")
        return whole[key]
    raise ProgramError("TypeError", f"{type(whole).__name__} has no member {key!r}")


def _substring(source: str, start: int, end: int) -> str:
    if not 0 <= start <= end <= len(source):
        raise ProgramError("IndexError", f"start {start} or end {end} is out of range")
    return source[start:end]


def _parsed(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ProgramError("ValueError", str(error)) from error
    if moment.tzinfo is None or "T" not in text:
        raise ProgramError("ValueError", f"{text!r} is not as RFC 3339 writes a time")
    return moment.timestamp()


def _get(whole: Any, key: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the value of a key, or null ("map.get")."""
    return whole.get(key) if isinstance(whole, dict) else None


def _int(value: Any) -> int:  # noqa: ANN401 - JSON
    try:
        return math.trunc(float(value)) if not isinstance(value, str) else int(value)
    except ValueError as error:
        raise ProgramError("ValueError", str(error)) from error


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "default": lambda value, otherwise: otherwise if value is None else value,
    "int": _int,
    "keys": list,
    "len": len,
    "map.get": _get,
    "math.max": max,
    "math.min": min,
    "string": lambda value: str(value).lower() if isinstance(value, bool) else str(value),
    "text.substring": _substring,
    "text.to_upper": lambda text: str(text).upper(),
    "time.parse": _parsed,
}
