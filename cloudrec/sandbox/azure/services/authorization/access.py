"""Who may do what where, now: a role assignment counts some time after it was made.

Duration: role-assignment-effect, from the assignment until it counts (Azure: up to ten minutes).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from cloudrec.sandbox.azure import entra
from cloudrec.sandbox.azure.registry import durations
from cloudrec.sandbox.azure.services.authorization.principals import SERVICE_PRINCIPAL
from cloudrec.sandbox.azure.services.authorization.roles import BUILT_IN, OWNER, Role
from cloudrec.sandbox.azure.services.subscriptions import SUBSCRIPTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.sandbox.world import World

durations({"role-assignment-effect": 60})

TYPE = "Microsoft.Authorization/roleAssignments"


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A role that a principal has at a scope and below."""

    id: str
    name: str
    scope: str
    role: str  # the GUID of its definition
    principal: str
    kind: str  # of the principal, as the assignment says
    made_at: float
    counts_from: float
    made_by: str = ""
    description: str | None = None
    condition: str | None = None
    condition_version: str | None = None
    by_us: bool = False  # nobody has asked for it by a call


def _birth() -> dict[str, Assignment]:
    """The subscription's first service principal owns it."""
    row = made(entra.OBJECT, OWNER, f"/subscriptions/{SUBSCRIPTION}", now=0.0)
    return {row.id.lower(): row}


@dataclass
class Grants:
    """Assignments by id, in lower case, and custom roles by GUID."""

    rows: dict[str, Assignment] = field(default_factory=_birth)
    custom: dict[str, Role] = field(default_factory=dict)


def made(principal: str, guid: str, scope: str, *, now: float) -> Assignment:
    """An assignment that counts at once."""
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
    """Whether a principal may do `action` at a scope now; `data`: to what is inside the resource."""
    return any(
        row.counts_from <= world.now() and role_of(world, row).allows(action, data=data)
        for row in at(world, scope)
        if row.principal.lower() == principal.lower()
    )


def at(world: World, scope: str) -> Iterator[Assignment]:
    """The assignments that reach a scope: made there or above it."""
    wanted = f"{scope.rstrip('/').lower()}/"
    for row in world.state(Grants).rows.values():
        if wanted.startswith(f"{row.scope.rstrip('/').lower()}/"):
            yield row


def below(world: World, scope: str) -> Iterator[Assignment]:
    """The assignments made at a scope or below it."""
    wanted = f"{scope.rstrip('/').lower()}/"
    for row in world.state(Grants).rows.values():
        if f"{row.scope.rstrip('/').lower()}/".startswith(wanted):
            yield row


def role(world: World, guid: str) -> Role | None:
    """The role of a GUID; None where there is none."""
    built_in = next((role for role in BUILT_IN if role.id == guid.lower()), None)
    return built_in or world.state(Grants).custom.get(guid.lower())


def role_of(world: World, row: Assignment) -> Role:
    """The role of an assignment; one that allows nothing where its definition is gone."""
    return role(world, row.role) or Role(id=row.role, title="", description="")


def grant(world: World, principal: str, guid: str, scope: str, *, by_us: bool = True) -> Assignment:
    """Give a role that counts at once, without a call; `by_us`: off the record too."""
    row = replace(made(principal, guid, scope, now=world.now()), by_us=by_us)
    world.state(Grants).rows[row.id.lower()] = row
    return row
