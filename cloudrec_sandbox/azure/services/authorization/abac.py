"""What a condition of a role assignment says, and whether it holds for an attempt (Azure ABAC).

Sources: "Azure role assignment condition format and syntax" (the functions and operators; parentheses where
AND and OR meet), "Actions and attributes for Azure role assignment conditions for Azure Blob Storage" and
"Authorization actions and attributes" (which attributes there are; their names ignore case). An operation
that lacks an attribute cannot evaluate a condition on it, and its access check fails ("Suboperations" of the
second page), so that a comparison of a missing attribute is neither true nor false here: no negation makes it
true, and only OR with something true does. Of negative operators that page does not say so; this is the
strict reading. Tags of blobs, custom security attributes, the environment, numbers and times are refused by
name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
ASSIGNMENTS = "Microsoft.Authorization/roleAssignments"
SUBOPERATIONS = ("Blob.List", "Blob.Read.WithTagConditions", "Blob.Write.Tier", "Blob.Write.WithTagHeaders")
_TYPES = {
    "@Resource[Microsoft.Storage/storageAccounts:name]": "String",
    "@Resource[Microsoft.Storage/storageAccounts:isHnsEnabled]": "Bool",
    "@Resource[Microsoft.Storage/storageAccounts/encryptionScopes:name]": "String",
    f"@Resource[{CONTAINERS}:name]": "String",
    f"@Resource[{CONTAINERS}/blobs:path]": "String",
    f"@Resource[{CONTAINERS}/blobs:isCurrentVersion]": "Bool",
    f"@Request[{CONTAINERS}/blobs:prefix]": "String",
    f"@Request[{CONTAINERS}/blobs:snapshot]": "DateTime",
    f"@Request[{CONTAINERS}/blobs:versionId]": "DateTime",
    **{
        f"@{source}[{ASSIGNMENTS}:{name}]": kind
        for source in ("Request", "Resource")
        for name, kind in (("RoleDefinitionId", "Guid"), ("PrincipalId", "Guid"), ("PrincipalType", "String"))
    },
}
TYPES = {name.lower(): kind for name, kind in _TYPES.items()}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a principal wants to do.

    Attributes:
        action: its action, or data action.
        suboperations: the suboperations that it is, such as Blob.List.
        attributes: its attributes that exist, by names as in conditions and in lower case.
    """

    action: str
    suboperations: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = field(default_factory=dict)


def named(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes for an Attempt; their names may have capitals."""
    return {name.lower(): value for name, value in attributes.items()}


@dataclass(frozen=True)
class Every:
    """All of the parts hold."""

    parts: tuple[Node, ...]

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether it holds; None if it cannot be evaluated."""
        found = [part.holds(attempt) for part in self.parts]
        return False if False in found else None if None in found else True


@dataclass(frozen=True)
class Some:
    """At least one of the parts holds."""

    parts: tuple[Node, ...]

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether it holds; None if it cannot be evaluated."""
        found = [part.holds(attempt) for part in self.parts]
        return True if True in found else None if None in found else False


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Node

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether it holds; None if it cannot be evaluated."""
        found = self.part.holds(attempt)
        return None if found is None else not found


@dataclass(frozen=True)
class Action:
    """ActionMatches: the action fits a pattern, in which stars stand for anything."""

    pattern: str

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether the attempt's action fits."""
        return self.fits(attempt.action)

    def fits(self, action: str) -> bool:
        """Return whether an action fits the pattern."""
        expression = re.escape(self.pattern).replace(r"\*", ".*")
        return re.fullmatch(expression, action, re.IGNORECASE) is not None


@dataclass(frozen=True)
class SubOperation:
    """SubOperationMatches: the attempt is this suboperation."""

    name: str

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether it is."""
        return self.name in attempt.suboperations


@dataclass(frozen=True)
class Exists:
    """The attempt has an attribute."""

    attribute: str

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether it has."""
        return self.attribute in attempt.attributes


@dataclass(frozen=True)
class Comparison:
    """An attribute compared with one of some values, or with all of them."""

    attribute: str
    test: Test
    values: tuple[str, ...]

    def holds(self, attempt: Attempt) -> bool | None:
        """Return whether it holds; None if the attempt lacks the attribute."""
        known = attempt.attributes.get(self.attribute)
        if known is None:
            return None
        # No attribute that this stand-in has is a list: any and all of its one value are the same.
        return self.test.quantifier(self.test.passes(known, value) for value in self.values)


Node = Every | Some | Not | Action | SubOperation | Exists | Comparison


@dataclass(frozen=True, kw_only=True)
class Test:
    """An operator.

    Attributes:
        kind: of the attributes that it compares.
        is_cross: whether it takes a list of values (ForAnyOfAnyValues and its like).
        quantifier: any or all, of the values on the right.
        relation: of two texts.
        is_negated: whether the relation must not hold.
        ignores_case: whether capitals are no difference.
    """

    kind: str
    is_cross: bool
    quantifier: Callable[[Iterator[bool]], bool]
    relation: Callable[[str, str], bool]
    is_negated: bool
    ignores_case: bool

    def passes(self, known: str, value: str) -> bool:
        """Return whether an attribute's value passes."""
        if self.ignores_case:
            known, value = known.lower(), value.lower()
        return self.relation(known, value) != self.is_negated


_OPERATOR = re.compile(
    r"(?:(?P<cross>For(?:Any|All)Of(?P<right>Any|All)Values):)?(?P<kind>String|Guid|Bool)(?P<negated>Not)?"
    r"(?P<relation>Equals|StartsWith|Like)(?P<case>IgnoreCase)?"
)


def operator(name: str) -> Test | None:
    """Return the operator with a name; None if Azure has none of this name."""
    found = _OPERATOR.fullmatch(name)
    if found is None:
        return None
    kind, relation, is_cross = found["kind"], found["relation"], found["cross"] is not None
    has_variants = kind == "String"
    if (relation != "Equals" or found["case"]) and not has_variants:
        return None
    if is_cross and (kind == "Bool" or relation == "StartsWith"):
        return None
    return Test(
        kind=kind,
        is_cross=is_cross,
        quantifier=all if found["right"] == "All" else any,
        relation=_RELATIONS[relation],
        is_negated=found["negated"] is not None,
        ignores_case=found["case"] is not None or not has_variants,
    )


def _is_like(known: str, pattern: str) -> bool:
    return _wildcards(pattern).fullmatch(known) is not None


@cache
def _wildcards(pattern: str) -> re.Pattern[str]:
    """Return a pattern's expression: a star is any text, a question mark one character, unless escaped."""
    pieces = re.findall(r"\\[*?]|.", pattern, re.DOTALL)
    signs = {"*": ".*", "?": "."}
    text = "".join(
        signs.get(piece) or re.escape(piece[-1] if piece in (r"\*", r"\?") else piece) for piece in pieces
    )
    return re.compile(text, re.DOTALL)


_RELATIONS: dict[str, Callable[[str, str], bool]] = {
    "Equals": lambda known, value: known == value,
    "StartsWith": lambda known, value: known.startswith(value),
    "Like": _is_like,
}


def actions(node: Node) -> Iterator[Action]:
    """Yield the actions that a condition names."""
    if isinstance(node, Action):
        yield node
    elif isinstance(node, Not):
        yield from actions(node.part)
    elif isinstance(node, Every | Some):
        for part in node.parts:
            yield from actions(part)
