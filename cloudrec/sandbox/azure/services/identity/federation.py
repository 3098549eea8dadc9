"""Federated credentials: the workloads that an identity trusts. One write at a time for an identity.

Duration: federation-write, during which another write to the same identity is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.kinds import Kind
from cloudrec.sandbox.azure.registry import durations
from cloudrec.sandbox.azure.registry import resource as register
from cloudrec.sandbox.azure.services.identity.identities import APIS, MODELS, TYPE
from cloudrec.sandbox.azure.store import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.world import World

durations({"federation-write": 1})

_MOST = 20
_LONGEST = 600  # characters of an issuer or a subject


@dataclass
class Writes:
    """When each identity's credentials were last written, by the identity's id in lower case."""

    until: dict[str, float] = field(default_factory=dict)


@register
class FederatedCredentials(Kind):
    """Issuer and subject of tokens that an identity's own is given for."""

    type = f"{TYPE}/federatedIdentityCredentials"
    apis: ClassVar[Sequence[str]] = APIS
    model = f"{MODELS}:FederatedIdentityCredential"
    name_rule = r"[A-Za-z0-9][\w-]{2,119}"
    is_located = takes_tags = False

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check what it says, how many there are, and that nobody else writes."""
        properties = body.get("properties") or {}
        for member in ("issuer", "subject"):
            value = str(properties.get(member) or "")
            if not value or len(value) > _LONGEST:
                raise ArmError(
                    "BadRequest",
                    f"Federated Identity Credential {member} must have 1 to {_LONGEST} characters.",
                )
        if not str(properties["issuer"]).startswith("https://"):
            raise ArmError(
                "BadRequest",
                "Federated Identity Credential issuer must be a valid URI that begins with https.",
            )
        if len(properties.get("audiences") or []) != 1:
            raise ArmError("BadRequest", "Federated Identity Credential must have exactly one audience.")
        _check_alone(call.world, call.path.parent)
        others = [
            other for other in store(call.world).of_type(self.type, call.path.parent) if other is not old
        ]
        for other in others:
            if all(other.properties[member] == properties[member] for member in ("issuer", "subject")):
                raise ArmError(
                    "Conflict",
                    "Issuer and subject combination already exists for this Managed Identity.",
                    status=HTTPStatus.CONFLICT,
                )
        if len(others) >= _MOST:
            raise ArmError(
                "BadRequest",
                f"Too many Federated Identity Credentials are assigned to this Managed Identity; the most is "
                f"{_MOST}.",
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Let nobody else write for a moment."""
        _begin_write(call.world, resource.path.parent)

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while somebody else writes."""
        _check_alone(world, resource.path.parent)

    def before_delete(self, world: World, resource: Resource) -> None:
        """Let nobody else write for a moment."""
        _begin_write(world, resource.path.parent)

    def mark(self, resource: Resource, state: str) -> None:
        """It shows no state."""


def _check_alone(world: World, identity: str) -> None:
    if world.state(Writes).until.get(identity.lower(), 0.0) > world.now():
        raise ArmError(
            "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
            "Too many Federated Identity Credentials are written concurrently for the managed identity "
            f"'{identity}'. Concurrent Federated Identity Credentials writes under the same managed identity "
            "are not supported.",
            status=HTTPStatus.CONFLICT,
        )


def _begin_write(world: World, identity: str) -> None:
    world.state(Writes).until[identity.lower()] = world.now() + world.duration("federation-write")
