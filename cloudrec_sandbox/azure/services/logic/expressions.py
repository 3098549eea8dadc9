"""Expressions of the Workflow Definition Language: `@greater(body('read')?['count'], 3)`.

Sources: "Schema reference for Workflow Definition Language" (expressions; `@@` is an at sign, `@{...}` is
within a longer text) and "Reference guide to workflow expression functions". All arguments are evaluated.
Null has no properties, and `?` returns null for them; a text has none at all. What Logic Apps has and
this module has not is refused by its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.services.logic.refusals import absent, invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cloudrec_sandbox.azure.services.logic.functions import Scope

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(-?\d+(?:\.\d+)?)|([A-Za-z_]\w*)|(\?|[(),\[\].]))")
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Literal:
    """A text, a number, true, false or null."""

    value: Any


@dataclass(frozen=True)
class Function:
    """A call of a function; its name is in lower case, since the language ignores case."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Property:
    """A property of a value; `is_optional` if null and a missing property give null."""

    of: Node
    key: Node
    is_optional: bool


Node = Literal | Function | Property


def is_expression(value: object) -> bool:
    """Return whether a value of a definition is an expression; ArmError for a text with one inside."""
    if not isinstance(value, str):
        return False
    if "@{" in value.replace("@@", ""):
        raise absent("an expression within a text (@{...})")
    return value.startswith("@") and not value.startswith("@@")


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """Parse an expression with its at sign; ArmError if it is malformed."""
    return _Parser(text[1:]).whole()


def functions(node: Node) -> Iterator[Function]:
    """Yield every call of a function in an expression."""
    if isinstance(node, Property):
        yield from functions(node.of)
        yield from functions(node.key)
    elif isinstance(node, Function):
        yield node
        for argument in node.arguments:
            yield from functions(argument)


class EvaluationError(Exception):
    """An expression has no value, which fails the action that it belongs to."""


def evaluate(node: Node, known: Mapping[str, Callable[..., Any]], scope: Scope) -> Any:  # noqa: ANN401 - JSON
    """Return the value of an expression; EvaluationError if it has none.

    Args:
        node: the expression.
        known: the functions by name; each takes the scope, then its arguments.
        scope: what functions know of the run.
    """
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Function):
        arguments = [evaluate(argument, known, scope) for argument in node.arguments]
        try:
            return known[node.name](scope, *arguments)
        except TypeError as error:
            raise EvaluationError(f"{node.name}: {error}") from error
    of, key = (evaluate(each, known, scope) for each in (node.of, node.key))
    return _selected(of, key, is_optional=node.is_optional)


def _selected(of: Any, key: Any, *, is_optional: bool) -> Any:  # noqa: ANN401 - JSON
    if isinstance(of, dict) and key in of:
        return of[key]
    if is_optional and (of is None or isinstance(of, dict)):
        return None
    kind = "Null" if of is None else type(of).__name__
    raise EvaluationError(f"property '{key}' cannot be selected of a value of type '{kind}'")


class _Parser:
    """A parser by recursive descent, with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Sequence[tuple[str, str]] = list(_tokens(text))
        self._at = 0

    def whole(self) -> Node:
        """Return the whole expression."""
        node = self._node()
        if self._at < len(self._tokens):
            raise self._wrong()
        return node

    def _node(self) -> Node:
        node = self._simple()
        while self._next() in {"[", "?", "."}:
            is_optional = self._take("?")
            if self._take("["):
                key = self._node()
                self._expect("]")
            else:
                self._expect(".")
                key = Literal(self._word())
            node = Property(node, key, is_optional)
        return node

    def _simple(self) -> Node:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        self._at += 1
        if kind == "text":
            return Literal(text[1:-1].replace("''", "'"))
        if kind == "number":
            return Literal(float(text) if "." in text else int(text))
        if kind != "word":
            raise self._wrong()
        if not self._take("("):
            if text.lower() not in _WORDS:
                raise self._wrong()
            return Literal(_WORDS[text.lower()])
        return Function(text.lower(), self._arguments())

    def _arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        if self._take(")"):
            return ()
        while True:
            found.append(self._node())
            if self._take(")"):
                return tuple(found)
            self._expect(",")

    def _word(self) -> str:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        if kind != "word":
            raise self._wrong()
        self._at += 1
        return text

    def _next(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong()

    def _wrong(self) -> Exception:
        return invalid(f"Unable to parse template language expression '{self._text}'")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, text = 0, text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise invalid(f"Unable to parse template language expression '{text}'")
        yield (
            ("text", "number", "word", "sign")[(found.lastindex or 1) - 1],
            found.group(found.lastindex or 1),
        )
        at = found.end()
