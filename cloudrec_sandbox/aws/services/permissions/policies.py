"""Whether policy documents allow an action on a resource under the facts of a request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Facts = dict[str, list[str]]  # condition keys in lower case, and their values
Document = str | dict[str, Any]
_ARN_PARTS = 5  # colons; each part is compared on its own, the last one whole


@dataclass(frozen=True, kw_only=True)
class Wish:
    """An action of a caller. An empty `resource`: the request does not name it, and any resource matches."""

    action: str
    resource: str = ""
    facts: Facts = field(default_factory=dict)


def allows(documents: Iterable[Document], wish: Wish) -> bool:
    """Return whether at least one statement allows it and none denies it."""
    return _effects(documents, wish) == {"Allow"}


def denies(documents: Iterable[Document], wish: Wish) -> bool:
    """Return whether a statement denies it, which overrides every permission."""
    return "Deny" in _effects(documents, wish)


def _effects(documents: Iterable[Document], wish: Wish) -> set[str]:
    return {
        statement["Effect"]
        for document in documents
        for statement in _listed(_parsed(document).get("Statement", []))
        if _applies(statement, wish)
    }


def _applies(statement: dict[str, Any], wish: Wish) -> bool:
    return (
        _action_fits(statement, wish.action)
        and _resource_fits(statement, wish.resource)
        and _conditions_hold(statement, wish.facts)
    )


def _action_fits(statement: dict[str, Any], action: str) -> bool:
    wanted = action.lower()
    if "NotAction" in statement:
        return not any(fnmatchcase(wanted, name.lower()) for name in _listed(statement["NotAction"]))
    return any(fnmatchcase(wanted, name.lower()) for name in _listed(statement.get("Action", [])))


def _resource_fits(statement: dict[str, Any], resource: str) -> bool:
    if not resource:
        return True
    if "NotResource" in statement:
        return not any(_like(resource, pattern) for pattern in _listed(statement["NotResource"]))
    return any(_like(resource, pattern) for pattern in _listed(statement.get("Resource", [])))


def _conditions_hold(statement: dict[str, Any], facts: Mapping[str, list[str]]) -> bool:
    """Return whether all conditions hold. An unknown operator holds for a Deny and not for an Allow."""
    unknown = statement["Effect"] == "Deny"
    return all(
        _holds(operator, facts.get(key.lower()), _listed(wanted), unknown=unknown)
        for operator, keys in statement.get("Condition", {}).items()
        for key, wanted in keys.items()
    )


def _holds(operator: str, values: list[str] | None, wanted: list[Any], *, unknown: bool) -> bool:
    """Compare as IAM's "condition operators" and "multivalued context keys" define, also without the key."""
    name = operator.removesuffix("IfExists")
    if name == "Null":
        return (values is None) == (str(wanted[0]).lower() == "true")
    if values is None and name != operator:
        return True
    every, _, name = name.rpartition(":")
    negated = "Not" in name
    compare = _COMPARE.get(name.replace("Not", ""))
    if compare is None:
        return unknown
    if values is None:
        # A missing key matches nothing: so it holds for all of its values, and for a negated operator.
        return every == "ForAllValues" or (negated and not every)
    hits = [any(compare(value, str(text)) for text in wanted) is not negated for value in values]
    return all(hits) if every == "ForAllValues" else any(hits)


def _arn_like(value: str, pattern: str) -> bool:
    """Compare ARNs: ArnEquals and ArnLike behave alike, and compare each of the six parts by itself."""
    parts, patterns = value.split(":", _ARN_PARTS), pattern.split(":", _ARN_PARTS)
    return len(parts) == len(patterns) and all(map(_like, parts, patterns))


def _like(value: str, pattern: str) -> bool:
    # In IAM's patterns only * and ? are special; fnmatch also knows [...].
    return fnmatchcase(value, pattern.replace("[", "[[]"))


_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda value, text: value == text,
    "StringEqualsIgnoreCase": lambda value, text: value.lower() == text.lower(),
    "StringLike": _like,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "Bool": lambda value, text: value.lower() == text.lower(),
}


def _parsed(document: Document) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(document) if isinstance(document, str) else document
    return parsed


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return value if isinstance(value, list) else [value]
