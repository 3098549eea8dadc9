"""Whether policy documents allow an action on a resource under the facts of a request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What somebody wants to do. `resource` is empty where the request does not tell it: then any will do."""

    action: str
    resource: str = ""
    facts: Mapping[str, list[str]] = field(default_factory=dict)  # condition keys, lower-case


def allows(documents: Iterable[str | dict[str, Any]], wish: Wish) -> bool:
    """Allowed by one statement at least, and denied by none."""
    effects = {
        statement["Effect"]
        for document in documents
        for statement in _listed(_parsed(document).get("Statement", []))
        if _applies(statement, wish)
    }
    return effects == {"Allow"}


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
    """Whether every condition holds. One that we cannot judge holds for a Deny and not for an Allow."""
    unknown = statement["Effect"] == "Deny"
    return all(
        _holds(operator, facts.get(key.lower()), _listed(wanted), unknown=unknown)
        for operator, keys in statement.get("Condition", {}).items()
        for key, wanted in keys.items()
    )


def _holds(operator: str, values: list[str] | None, wanted: list[Any], *, unknown: bool) -> bool:
    name = operator.removesuffix("IfExists")
    if name == "Null":
        return (values is None) == (str(wanted[0]).lower() == "true")
    if values is None and name != operator:
        return True
    every, _, name = name.rpartition(":")
    values = values or []
    texts = [str(text) for text in wanted]
    if name in ("StringEquals", "ArnEquals", "Bool"):
        hits = [
            any(value == text or (name == "ArnEquals" and _like(value, text)) for text in texts)
            for value in values
        ]
    elif name in ("StringLike", "ArnLike"):
        hits = [any(_like(value, text) for text in texts) for value in values]
    elif name in ("StringNotEquals", "StringNotLike", "ArnNotLike", "ArnNotEquals"):
        hits = [not any(_like(value, text) for text in texts) for value in values] or [True]
    else:
        return unknown
    return all(hits) if every == "ForAllValues" else any(hits)


def _like(value: str, pattern: str) -> bool:
    return fnmatchcase(value, pattern.replace("[", "[[]"))


def _parsed(document: str | dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(document) if isinstance(document, str) else document
    return parsed


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return value if isinstance(value, list) else [value]
