"""Which principal may do what at which scope now: a role assignment takes effect some time later.

Duration: role-assignment-effect, until an assignment takes effect (Azure: up to ten minutes).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm.paths import SUBSCRIPTION
from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.identity import entra
from cloudrec_sandbox.azure.services.authorization.abac import Attempt
from cloudrec_sandbox.azure.services.authorization.abac_syntax import parse
from cloudrec_sandbox.azure.services.authorization.principals import SERVICE_PRINCIPAL
from cloudrec_sandbox.azure.services.authorization.roles import BUILT_IN, OWNER, Role
from cloudrec_sandbox.core.book import Decisions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.core.world import World

durations({"role-assignment-effect": 60})

TYPE = "Microsoft.Authorization/roleAssignments"


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A role that a principal has at a scope and below it."""

    id: str
    name: str
    scope: str
    role: str  # the GUID of its definition
    principal: str
    kind: str  # the principal's type, as the assignment names it
    made_at: float
    counts_from: float
    made_by: str = ""
    description: str | None = None
    condition: str | None = None
    condition_version: str | None = None
    by_us: bool = False  # the stand-in made it; no call did


def _birth() -> dict[str, Assignment]:
    """Return the assignment that makes the subscription's first service principal its owner."""
    row = made(entra.OBJECT, OWNER, f"/subscriptions/{SUBSCRIPTION}", now=0.0)
    return {row.id.lower(): row}


@dataclass
class Grants:
    """Assignments by id, in lower case, and custom roles by GUID."""

    rows: dict[str, Assignment] = field(default_factory=_birth)
    custom: dict[str, Role] = field(default_factory=dict)


def made(principal: str, guid: str, scope: str, *, now: float) -> Assignment:
    """Return an assignment that takes effect at once."""
    name = str(uuid5(NAMESPACE_URL, f"{scope} {principal} {guid}"))
    return Assignment(
        id=f"{scope}/providers/{TYPE}/{name}",
        name=name,
        scope=scope,
        role=guid,
        principal=principal,
        kind=SERVICE_PRINCIPAL,
        made_at=now,
        counts_from=now,
        by_us=True,
    )


def has(world: World, principal: str, action: str, scope: str, *, data: bool = False) -> bool:
    """Return whether a principal may do `action` at a scope now, which is recorded.

    `data`: to the data in the resource. A condition counts as for an attempt that has no attributes.
    """
    is_allowed = permits(world, principal, Attempt(action=action), scope, data=data)
    note(world, principal, action, is_allowed=is_allowed)
    return is_allowed


def permits(world: World, principal: str, attempt: Attempt, scope: str, *, data: bool) -> bool:
    """Return whether a principal may do what it attempts at a scope; conditions limit data actions alone."""
    # An assignment exists before it takes effect: Azure needs some minutes for that.
    return any(
        row.counts_from <= world.now()
        and role_of(world, row).allows(attempt.action, data=data)
        and (not data or is_fulfilled(row, attempt))
        for row in at(world, scope)
        if row.principal.lower() == principal.lower()
    )


def is_fulfilled(row: Assignment, attempt: Attempt) -> bool:
    """Return whether an assignment's condition holds for an attempt."""
    return not row.condition or parse(row.condition).holds(attempt) is True


def note(world: World, principal: str, action: str, *, is_allowed: bool) -> None:
    """Record a decision."""
    world.state(Decisions).note(principal.lower(), action, is_allowed=is_allowed)


def at(world: World, scope: str) -> Iterator[Assignment]:
    """Yield the assignments that apply to a scope: made there or above it."""
    # With a slash at the end, so that group "a" is not above group "ab".
    wanted = f"{scope.rstrip('/').lower()}/"
    for row in world.state(Grants).rows.values():
        if wanted.startswith(f"{row.scope.rstrip('/').lower()}/"):
            yield row


def below(world: World, scope: str) -> Iterator[Assignment]:
    """Yield the assignments made at a scope or below it."""
    wanted = f"{scope.rstrip('/').lower()}/"
    for row in world.state(Grants).rows.values():
        if f"{row.scope.rstrip('/').lower()}/".startswith(wanted):
            yield row


def role(world: World, guid: str) -> Role | None:
    """Return the role with a GUID; None if there is none."""
    built_in = next((role for role in BUILT_IN if role.id == guid.lower()), None)
    return built_in or world.state(Grants).custom.get(guid.lower())


def role_of(world: World, row: Assignment) -> Role:
    """Return the role of an assignment; one that allows nothing if its definition is gone."""
    return role(world, row.role) or Role(id=row.role, title="", description="")


def grant(world: World, principal: str, guid: str, scope: str, *, by_us: bool = True) -> Assignment:
    """Assign a role that takes effect at once, without a call; `by_us`: /_control/state does not list it."""
    row = replace(made(principal, guid, scope, now=world.now()), by_us=by_us)
    world.state(Grants).rows[row.id.lower()] = row
    return row
