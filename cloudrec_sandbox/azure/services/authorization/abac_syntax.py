"""The text of a condition: "Azure role assignment condition format and syntax".

Spellings are those of the page: Azure may take others too, such as operators in other capitals. The page
shows no quotation mark within a text, so that no text can have one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cloudrec_sandbox.azure.services.authorization import abac

_GUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TOKEN = re.compile(
    rf"(?P<text>'[^']*')|(?P<attribute>@\w+\[[^\]\s]+\])|(?P<guid>{_GUID})(?!\w)"
    r"|(?P<word>[A-Za-z]+(?::[A-Za-z]+)?)|(?P<sign>&&|\|\||[!(){},])"
)
_SPELLINGS = {"&&": "AND", "||": "OR", "!": "NOT"}
# What Azure has and this stand-in does not evaluate.
_ABSENT = re.compile(
    rf"@(Principal|Environment)\[.+\]|@(Resource|Request)\[{abac.CONTAINERS}(/blobs/tags[:&].+|/blobs:include|"
    r"/metadata[:&].+)\]",
    re.IGNORECASE,
)
_ABSENT_OPERATOR = re.compile(r"(?:For(?:Any|All)Of(?:Any|All)Values:)?(?:Numeric|DateTime)\w+")


_DEEPEST = 100  # of this stand-in, which would end in a traceback; Azure names no limit


class ConditionError(ValueError):
    """A text is no condition."""


class AbsentError(ValueError):
    """A condition has something that Azure has and this stand-in has not."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


_END = _Token("end", "")


@lru_cache(maxsize=1024)
def parse(text: str) -> abac.Node:
    """Parse a condition; ConditionError if malformed, AbsentError if this stand-in cannot evaluate it."""
    return _Parser(text).whole()


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConditionError(f"what is {rest[:20]!r}?")
        at, kind = match.end(), str(match.lastgroup)
        found.append(_Token(kind, _SPELLINGS.get(match[0], match[0])))
    return [*found, _END]


class _Parser:
    """Reads one condition from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens, self._at, self._depth = _tokens(text), 0, 0

    def whole(self) -> abac.Node:
        """Return the condition; ConditionError if anything follows it."""
        node = self._junction()
        if self._next != _END:
            raise ConditionError(f"{self._next.text!r} follows the end")
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _taken(self, text: str) -> bool:
        """Return whether the next token is this one, which is taken then; texts in quotes never are."""
        is_next = self._next.kind in ("word", "sign") and self._next.text == text
        if is_next:
            self._take()
        return is_next

    def _need(self, text: str) -> None:
        if not self._taken(text):
            raise ConditionError(f"{text!r} is missing before {self._next.text!r}")

    def _junction(self) -> abac.Node:
        """Parse parts with AND between all of them, or OR: without parentheses a mixture has no order."""
        parts, joined = [self._unary()], {"AND": False, "OR": False}
        while self._next.text in joined and self._next.kind in ("word", "sign"):
            joined[self._take().text] = True
            parts.append(self._unary())
        if all(joined.values()):
            raise ConditionError("AND and OR meet without parentheses")
        if len(parts) == 1:
            return parts[0]
        return abac.Every(tuple(parts)) if joined["AND"] else abac.Some(tuple(parts))

    def _unary(self) -> abac.Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConditionError(f"it is nested more than {_DEEPEST} deep")
        node = self._one()
        self._depth -= 1
        return node

    def _one(self) -> abac.Node:
        if self._taken("NOT"):
            return abac.Not(self._unary())
        if self._taken("("):
            node = self._junction()
            self._need(")")
            return node
        if self._taken("ActionMatches"):
            return abac.Action(self._only())
        if self._taken("SubOperationMatches"):
            return self._suboperation()
        if self._taken("Exists"):
            return abac.Exists(self._attribute())
        return self._comparison()

    def _only(self) -> str:
        """Parse the one text in braces after the name of a function."""
        if self._next.text != "{":
            raise ConditionError(f"'{{' is missing before {self._next.text!r}")
        values = self._values()
        if len(values) != 1:
            raise ConditionError("a function takes one text")
        return values[0]

    def _suboperation(self) -> abac.Node:
        name = self._only()
        if name not in abac.SUBOPERATIONS:
            raise ConditionError(f"there is no suboperation {name}")
        return abac.SubOperation(name)

    def _attribute(self) -> str:
        token = self._take()
        if token.kind != "attribute":
            raise ConditionError(f"{token.text!r} is no attribute")
        if token.text.lower() in abac.TYPES:
            return token.text.lower()
        if _ABSENT.fullmatch(token.text):
            raise AbsentError(f"the attribute {token.text}")
        raise ConditionError(f"there is no attribute {token.text}")

    def _comparison(self) -> abac.Node:
        attribute, name = self._attribute(), self._take()
        if name.kind == "word" and _ABSENT_OPERATOR.fullmatch(name.text):
            raise AbsentError(f"the operator {name.text}")
        test = abac.operator(name.text) if name.kind == "word" else None
        if test is None or test.kind != abac.TYPES[attribute]:
            raise ConditionError(f"there is no operator {name.text} for {attribute}")
        is_list = self._next.text == "{"
        values = self._values(kind=test.kind)
        if is_list != test.is_cross:
            raise ConditionError(f"{name.text} takes {'a list in braces' if test.is_cross else 'one value'}")
        return abac.Comparison(attribute, test, values)

    def _values(self, kind: str = "String") -> tuple[str, ...]:
        """Parse one value, or several in braces."""
        if not self._taken("{"):
            return (self._value(kind),)
        found = [self._value(kind)]
        while self._taken(","):
            found.append(self._value(kind))
        self._need("}")
        return tuple(found)

    def _value(self, kind: str) -> str:
        token = self._take()
        if kind == "String" and token.kind == "text":
            return token.text[1:-1]
        if kind == "Guid" and token.kind == "guid":
            return token.text
        if kind == "Bool" and token.kind == "word" and token.text in ("true", "false"):
            return token.text
        raise ConditionError(f"{token.text!r} is no value of type {kind}")
