"""OData's $filter, as far as Azure's services support it: eq, ne, and, or, not, parentheses, some functions.

parse("location eq 'eastus'")({"location": "eastus"})  # True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
Test = Callable[[Document], bool]

_TOKEN = re.compile(r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<mark>[(),])|(?P<word>[^\s(),']+))")


class FilterError(ValueError):
    """The text is not a filter, or uses what the service does not support."""


@dataclass(frozen=True)
class _Token:
    kind: str
    value: str


def parse(
    text: str,
    *,
    functions: Mapping[str, Callable[..., bool]] | None = None,
    names: Collection[str] | None = None,
) -> Test:
    """Return the test for a filter; FilterError if it cannot be parsed.

    Args:
        text: the filter.
        functions: functions beside contains and startswith; they get the document first.
        names: the names that a filter may use; None for any.

    A name's value is looked up by path, such as `properties/principalId`, or by the name alone in
    `properties` if the document itself does not have it.
    """
    reader = _Reader(list(_tokens(text)), {**_FUNCTIONS, **(functions or {})}, names)
    test = reader.alternatives()
    if reader.rest:
        raise FilterError(f"unexpected {reader.rest[0].value!r} in {text!r}")
    return test


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterError(f"cannot read {text[position:]!r}")
        kind = str(match.lastgroup)
        value = match[kind]
        found.append(_Token(kind, value[1:-1].replace("''", "'") if kind == "text" else value))
        position = match.end()
    return found


def value(document: Document, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return a document's value at a path; None if there is none."""
    for place in (document, document.get("properties") or {}):
        found: Any = place
        for part in path.split("/"):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None


_FUNCTIONS: dict[str, Callable[..., bool]] = {
    "contains": lambda document, name, part: part in str(value(document, name) or ""),
    "startswith": lambda document, name, part: str(value(document, name) or "").startswith(part),
}


@dataclass
class _Reader:
    rest: list[_Token]
    functions: Mapping[str, Callable[..., bool]]
    names: Collection[str] | None

    def alternatives(self) -> Test:
        tests = [self.parts()]
        while self._take_word("or"):
            tests.append(self.parts())
        return tests[0] if len(tests) == 1 else lambda document: any(test(document) for test in tests)

    def parts(self) -> Test:
        tests = [self.part()]
        while self._take_word("and"):
            tests.append(self.part())
        return tests[0] if len(tests) == 1 else lambda document: all(test(document) for test in tests)

    def part(self) -> Test:
        if self._take_word("not"):
            test = self.part()
            return lambda document: not test(document)
        if self._take_mark("("):
            inner = self.alternatives()
            self._expect_mark(")")
            return inner
        name = self._next("word")
        if self._take_mark("("):
            return self._function(name)
        self._check_name(name)
        operator, wanted = self._next("word"), self._operand()
        if operator not in ("eq", "ne"):
            raise FilterError(f"unknown operator {operator!r}")
        return lambda document: (_text(value(document, name)) == wanted) is (operator == "eq")

    def _function(self, name: str) -> Test:
        if name not in self.functions:
            raise FilterError(f"unknown function {name!r}")
        arguments: list[str] = []
        while not self._take_mark(")"):
            arguments.append(self._operand())
            self._take_mark(",")
        if name in _FUNCTIONS and arguments:
            self._check_name(arguments[0])
        function = self.functions[name]
        return lambda document: function(document, *arguments)

    def _check_name(self, name: str) -> None:
        if self.names is not None and name not in self.names:
            raise FilterError(f"cannot ask for {name!r}, only for {', '.join(sorted(self.names))}")

    def _operand(self) -> str:
        if not self.rest or self.rest[0].kind == "mark":
            raise FilterError("a value is missing")
        return self.rest.pop(0).value

    def _next(self, kind: str) -> str:
        if not self.rest or self.rest[0].kind != kind:
            raise FilterError(f"a {kind} is missing")
        return self.rest.pop(0).value

    def _take_word(self, word: str) -> bool:
        return self._take(_Token("word", word))

    def _take_mark(self, mark: str) -> bool:
        return self._take(_Token("mark", mark))

    def _take(self, token: _Token) -> bool:
        if self.rest and self.rest[0] == token:
            self.rest.pop(0)
            return True
        return False

    def _expect_mark(self, mark: str) -> None:
        if not self._take_mark(mark):
            raise FilterError(f"{mark!r} is missing")


def _text(found: Any) -> str:  # noqa: ANN401 - JSON
    return str(found).lower() if isinstance(found, bool) else str(found if found is not None else "null")
