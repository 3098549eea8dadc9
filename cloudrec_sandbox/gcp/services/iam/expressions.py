"""Conditions of bindings: the part of CEL that names resources ("Attribute reference for IAM Conditions").

A condition is a disjunction of conjunctions of terms. A term that this module does not support does not hold.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_TYPE = re.compile(r"""resource\.type (==|!=) (["'])([^"']*)\2""")
_NAME = re.compile(r"""resource\.name == (["'])([^"']*)\1""")
_STARTS = re.compile(r"""resource\.name\.startsWith\((["'])([^"']*)\1\)""")
_EXTRACT = re.compile(
    r"""resource\.name\.extract\((["'])([^"'{]*)\{\w+\}([^"']*)\1\)\.startsWith\((["'])([^"']*)\4\)"""
)
_MODIFIED = re.compile(
    r"""api\.getAttribute\((["'])iam\.googleapis\.com/modifiedGrantsByRole\1, \[\]\)"""
    r"""\.hasOnly\(\[([^\]]*)\]\)"""
)
_QUOTED = re.compile(r"""(["'])([^"']*)\1""")


def holds(expression: str, *, name: str, kind: str, modified: AbstractSet[str] | None = None) -> bool:
    """Return whether a condition holds.

    Args:
        expression: of the condition.
        name: the full name of the resource.
        kind: its type.
        modified: the roles whose members a call changes. None if that is not known: a condition on it then
            holds, and is checked again with them.
    """
    return any(
        all(_term(term.strip(), name, kind, modified) for term in terms.split("&&"))
        for terms in expression.split("||")
    )


def _term(term: str, name: str, kind: str, modified: AbstractSet[str] | None) -> bool:
    if found := _TYPE.fullmatch(term):
        return (kind == found[3]) is (found[1] == "==")
    if found := _NAME.fullmatch(term):
        return name == found[2]
    if found := _STARTS.fullmatch(term):
        return name.startswith(found[2])
    if found := _EXTRACT.fullmatch(term):
        return _extracted(name, found[2], found[3]).startswith(found[5])
    if found := _MODIFIED.fullmatch(term):
        return modified is None or modified <= {each[1] for each in _QUOTED.findall(found[2])}
    return False


def _extracted(name: str, before: str, after: str) -> str:
    """Return the text between two parts of a name, or to its end; '' if the name does not have them."""
    _, found, rest = name.partition(before)
    if not found or (after and after not in rest):
        return ""
    return rest.partition(after)[0] if after else rest
