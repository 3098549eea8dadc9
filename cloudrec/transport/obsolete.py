"""Warnings about settings of old recipes that are useless or harmful, with reason and remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

_FILE = "obsolete.yaml"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A warning about one setting of a user.

    Attributes:
        name: the variable.
        value: its value.
        harmful: whether it slows the run down or breaks it; False if it has no effect.
        reason: why.
        remedy: what to do instead.
        source: the source of the reason.
    """

    name: str
    value: str
    harmful: bool
    reason: str
    remedy: str
    source: str


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    names: tuple[str, ...] = Field(min_length=1)
    fabrics: tuple[str, ...] = ()
    value: str | None = None
    effect: Literal["harmful", "useless"]
    reason: str
    remedy: str
    source: str

    def is_about(self, name: str, value: str, fabric: str) -> bool:
        """Return whether this rule is about a setting."""
        if self.fabrics and fabric not in self.fabrics:
            return False
        if not any(fnmatchcase(name, pattern) for pattern in self.names):
            return False
        return self.value is None or re.fullmatch(self.value, value) is not None


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    date: object
    rules: tuple[_Rule, ...]


def advise(environment: Mapping[str, str], fabric: str) -> list[Advice]:
    """Return the warnings about a user's settings, at most one for each variable, in their order.

    Args:
        environment: the variables that the user set for the run.
        fabric: the cluster's fabric: efa, infiniband, tcpx, tcpxo, tcp, none.
    """
    found = []
    for name, value in environment.items():
        rule = next((rule for rule in _rules() if rule.is_about(name, value, fabric)), None)
        if rule is not None:
            found.append(
                Advice(
                    name=name,
                    value=value,
                    harmful=rule.effect == "harmful",
                    reason=rule.reason,
                    remedy=rule.remedy,
                    source=rule.source,
                )
            )
    return found


@cache
def _rules() -> tuple[_Rule, ...]:
    text = files("cloudrec.transport").joinpath(_FILE).read_text(encoding="utf-8")
    return _Rules.model_validate(yaml.safe_load(text)).rules  # noqa: TID251 - a shipped table
