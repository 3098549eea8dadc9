"""The `filter` of Compute's lists: (name = "x") AND (status != "READY"), labels.key=value, name eq "x.*"."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any, NoReturn

from cloudrec_sandbox.gcp.api.errors import GcpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Test = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(
    r"""\s*(?:(\()|(\))|(!=|<=|>=|=|:|<|>)|"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s()=:!<>"']+))"""
)
_REGEXES = {"eq": True, "ne": False}


def matches(text: str, document: Mapping[str, Any]) -> bool:
    """Return whether a document matches a filter; GcpError for a malformed filter."""
    return not text.strip() or _Reader(text).read()(document)


class _Reader:
    """Parses one filter: terms with AND, OR, NOT and brackets; AND may be left out."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, place = text, list[tuple[str, str]](), 0
        text = text.strip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                self._refuse()
            bracket, end, sign, double, single, word = found.groups()
            kind = "sign" if bracket or end or sign else "text" if word is None else "word"
            self._tokens.append((kind, next(part for part in found.groups() if part is not None)))
            place = found.end()
            del double, single

    def read(self) -> Test:
        test = self._any()
        if self._tokens:
            self._refuse()
        return test

    def _refuse(self) -> NoReturn:
        raise GcpError(
            "INVALID_ARGUMENT",
            f"Invalid value for field 'filter': '{self._text}'. Invalid list filter expression.",
        )

    def _any(self) -> Test:
        tests = [self._all()]
        while self._skip("OR"):
            tests.append(self._all())
        return lambda document: any(test(document) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._tokens and self._tokens[0] not in (("sign", ")"), ("word", "OR")):
            self._skip("AND")
            tests.append(self._one())
        return lambda document: all(test(document) for test in tests)

    def _one(self) -> Test:
        if self._skip("NOT"):
            inner = self._one()
            return lambda document: not inner(document)
        kind, first = self._next()
        if (kind, first) == ("sign", "("):
            test = self._any()
            if self._next() != ("sign", ")"):
                self._refuse()
            return test
        if kind == "sign":
            self._refuse()
        operator = self._next()[1]
        kind, value = self._next()
        if kind == "sign" or operator not in ("=", "!=", ":", "<", ">", "<=", ">=", *_REGEXES):
            self._refuse()
        return lambda document: _compare(_field(document, first), operator, value)

    def _skip(self, word: str) -> bool:
        if self._tokens and self._tokens[0] == ("word", word):
            del self._tokens[0]
            return True
        return False

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            self._refuse()
        return self._tokens.pop(0)


def _field(document: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - any JSON
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


# `=` takes * as a wildcard and `:` means "has"; eq and ne take regular expressions.
def _compare(found: Any, operator: str, value: str) -> bool:  # noqa: ANN401 - any JSON
    if operator in ("<", ">", "<=", ">="):
        return found is not None and _ordered(str(found), operator, value)
    text = str(found).lower() if isinstance(found, bool) else "" if found is None else str(found)
    if operator in _REGEXES:
        return bool(re.fullmatch(value, text)) is _REGEXES[operator]
    if operator == ":":
        if value == "*":
            return found is not None
        has = isinstance(found, (list, dict)) and value in found
        return has or fnmatch.fnmatchcase(text.lower(), f"*{value.lower()}*")
    return fnmatch.fnmatchcase(text, value) is (operator == "=")


def _ordered(found: str, operator: str, value: str) -> bool:
    try:
        left, right = float(found), float(value)
    # Numbers are compared as numbers, all else as text.
    except ValueError:
        return _holds(found > value, found == value, operator)
    return _holds(left > right, left == right, operator)


def _holds(greater: bool, equal: bool, operator: str) -> bool:  # noqa: FBT001 - what a comparison found
    if equal:
        return operator.endswith("=")
    return greater is (operator[0] == ">")
