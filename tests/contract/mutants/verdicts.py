"""What a vendor does with a changed request, by the vendor's own models and by a table of documented rules.

The tables (rules/*.yaml) and the models say it, never a stand-in: a stand-in's code is what the mutants test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.contract.mutants.changes import Mutant

_RULES = Path(__file__).with_name("rules")
Kind = Literal["refuse", "free", "effect", "unknown"]
Lack = Literal["", "driver", "every-card", "one-card", "interface", "memlock"]
MEANINGS: Mapping[Kind, str] = {
    "refuse": "the vendor refuses it",
    "free": "the vendor accepts it, and the node is as good",
    "effect": "the vendor accepts it, and the node or the run is wrong",
    "unknown": "no source says what the vendor does",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the vendor does with a mutant, why, and who says so."""

    kind: Kind
    reason: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Catch:
    """What finds an effect before it harms a run, as a rule claims.

    Attributes:
        by: who finds it; empty if nothing does.
        lacks: for the node check: what the node lacks. The real agent can be run on such a node.
    """

    by: str = ""
    lacks: Lack = ""


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Row):
    """One documented rule.

    Attributes:
        field: regular expression of fields without numbers.
        change: regular expression of changes.
        value: regular expression of the new value, as text.
        machines: regular expression of the machine types that it is for.
        entry: regular expression of the numbers of the field's list entries, joined by commas.
        verdict: what the vendor does.
        caught_by: for an effect: what finds it before it harms a run.
        lacks: for the node check: what the node then lacks.
    """

    field: str
    change: str = ".*"
    value: str = ".*"
    machines: str = ".*"
    entry: str = ".*"
    verdict: Kind
    reason: str = Field(min_length=10)
    source: str
    caught_by: Literal["", "node-check", "scheduler", "stage"] = ""
    lacks: Lack = ""

    @model_validator(mode="after")
    def _is_measurable(self) -> Rule:
        if bool(self.lacks) != (self.caught_by == "node-check"):
            raise ValueError("what the node lacks is stated for the node check, and for nothing else")
        return self


class _Table(_Row):
    date: object
    sources: Mapping[str, str]
    alternatives: Mapping[str, tuple[str | int | float | bool, ...]] = {}
    keep: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


@cache
def table(name: str) -> _Table:
    """Return a table of documented rules; each rule's source is one of its list."""
    found = _Table.model_validate(yaml.safe_load((_RULES / f"{name}.yaml").read_text(encoding="utf-8")))
    if missing := {rule.source for rule in found.rules} - set(found.sources):
        raise ValueError(f"{name}.yaml names sources that it does not list: {', '.join(sorted(missing))}")
    return found


class Model(Protocol):
    """A vendor's model of a request."""

    name: str

    def fault(self, mutant: Mutant) -> str:
        """Return why the model does not allow the request; empty if it does."""

    def is_optional(self, mutant: Mutant) -> bool:
        """Return whether the model lets the field be absent."""


class Documented(Protocol):
    """A rule about a whole request, such as two interfaces on one place."""

    def __call__(self, document: Any) -> str:
        """Return why the vendor refuses the request; empty if it does not."""


def judge(
    mutant: Mutant,
    *,
    machine: str,
    rules: str,
    model: Model,
    whole: Iterable[tuple[Documented, str]] = (),
) -> tuple[Verdict, Catch]:
    """Return the verdict on a mutant, and what finds an effect.

    A source by which the vendor refuses comes before one by which it accepts.

    Args:
        mutant: the changed request.
        machine: the machine type.
        rules: the table of documented rules.
        model: the vendor's model.
        whole: rules about whole requests, with their sources.
    """
    rows = [rule for rule in table(rules).rules if _is_about(rule, mutant, machine)]
    sources = table(rules).sources
    for rule in rows:
        if rule.verdict == "refuse":
            return Verdict(kind="refuse", reason=rule.reason, source=sources[rule.source]), Catch()
    if fault := model.fault(mutant):
        return Verdict(kind="refuse", reason=fault, source=model.name), Catch()
    for documented, source in whole:
        if fault := documented(mutant.document):
            return Verdict(kind="refuse", reason=fault, source=source), Catch()
    if rows:
        reason, source = rows[0].reason, sources[rows[0].source]
        catch = Catch(by=rows[0].caught_by, lacks=rows[0].lacks)
        return Verdict(kind=rows[0].verdict, reason=reason, source=source), catch
    if mutant.change == "remove" and model.is_optional(mutant):
        return Verdict(kind="free", reason="the model has the member as optional", source=model.name), Catch()
    return Verdict(kind="unknown", reason="", source=""), Catch()


def _is_about(rule: Rule, mutant: Mutant, machine: str) -> bool:
    entry = ",".join(str(part) for part in mutant.path if isinstance(part, int))
    pairs: Sequence[tuple[str, str]] = (
        (rule.entry, entry),
        (rule.field, mutant.field),
        (rule.change, mutant.change),
        (rule.value, str(mutant.value)),
        (rule.machines, machine),
    )
    return all(re.fullmatch(pattern, text) for pattern, text in pairs)
