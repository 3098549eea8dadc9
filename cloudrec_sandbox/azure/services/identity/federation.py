"""Federated credentials: the workloads that an identity trusts. An identity takes one write at a time.

Duration: federation-write, during which another write to the same identity is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.identity.identities import APIS, MODELS, TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"federation-write": 1})

_MOST = 20
_LONGEST = 600  # characters of an issuer or a subject


@dataclass
class Writes:
    """When each identity's credentials were last written, by the identity's id in lower case."""

    until: dict[str, float] = field(default_factory=dict)


@register
class FederatedCredentials(Kind):
    """The issuer and subject of the tokens that can be exchanged for the identity's token."""

    type = f"{TYPE}/federatedIdentityCredentials"
    apis: ClassVar[Sequence[str]] = APIS
    model = f"{MODELS}:FederatedIdentityCredential"
    name_rule = r"[A-Za-z0-9][\w-]{2,119}"
    is_located = takes_tags = False

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the properties, the number of credentials, and that no other write runs."""
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
        # Entra does not take parallel writes under one identity (aks-docs, workload identity).
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
        # At most 20 per identity (aks-docs, workload identity).
        if len(others) >= _MOST:
            raise ArmError(
                "BadRequest",
                f"Too many Federated Identity Credentials are assigned to this Managed Identity; the most is "
                f"{_MOST}.",
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Begin the write: others are refused for a moment."""
        _begin_write(call.world, resource.path.parent)

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse while another write runs."""
        _check_alone(world, resource.path.parent)

    def before_delete(self, world: World, resource: Resource) -> None:
        """Begin the write: others are refused for a moment."""
        _begin_write(world, resource.path.parent)

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""


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
