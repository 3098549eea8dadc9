"""What an identity holds, compared with what its flows use; and which of it no flow needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, order=True)
class Grant:
    """A permission that an identity holds: the action, and the statement or role that has it."""

    action: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.source}: {self.action}" if self.source else self.action


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the flows of an identity did.

    Attributes:
        used: the permissions that the stand-in allowed it.
        refused: the permissions that the stand-in refused it.
        said: what the flows report; empty if all of them succeed.
    """

    used: frozenset[str]
    refused: frozenset[str]
    said: str


def reports(refusals: tuple[type[Exception], ...], *steps: Callable[[], object]) -> str:
    """What the steps report or raise, each by itself; empty if all of them succeed."""
    problems = []
    for step in steps:
        try:
            problems.append(str(step() or ""))
        except refusals as error:
            problems.append(str(error))
    return "; ".join(filter(None, problems))


def differences(held: Iterable[str], used: Iterable[str], unused: Mapping[str, str]) -> list[str]:
    """Compare what is held with what is used.

    Args:
        held: the permissions that an identity holds.
        used: those that its flows use.
        unused: those that no flow here uses, each with the reason.
    """
    has, uses = set(held), set(used)
    return [
        *(f"used, not held: {each}" for each in sorted(uses - has)),
        *(f"held, not used: {each}" for each in sorted(has - uses - unused.keys())),
        *(f"said to be unused, but used: {each}" for each in sorted(unused.keys() & uses)),
        *(f"said to be unused, but not held: {each}" for each in sorted(unused.keys() - has)),
    ]


def names_it(grant: Grant, found: Found) -> bool:
    """Whether the action of a grant is named in what the flows say, or in the record of refusals."""
    return grant.action in found.said or grant.action in found.refused


def unneeded(
    grants: Iterable[Grant],
    without: Callable[[Grant], Found],
    names: Callable[[Grant, Found], bool] = names_it,
) -> list[str]:
    """Return the grants without which no flow fails, or fails without naming the action.

    Args:
        grants: what to take away, one at a time.
        without: takes one away, runs the flows, and gives it back.
        names: whether what was found names an action of the grant.
    """
    silent = []
    for grant in grants:
        found = without(grant)
        if not found.said:
            silent.append(f"{grant}: no flow fails")
        elif not names(grant, found):
            silent.append(f"{grant}: not named: {found.said}")
    return silent
