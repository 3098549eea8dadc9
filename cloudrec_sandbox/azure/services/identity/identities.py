"""User-assigned identities. Other services see an identity's principal some seconds after its creation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services.authorization import principals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

APIS = ("2024-11-30", "2023-01-31")
MODELS = "azure.mgmt.msi.v2024_11_30.models"
TYPE = "Microsoft.ManagedIdentity/userAssignedIdentities"


@register
class Identities(Kind):
    """Identities: created and removed at once."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = APIS
    model = f"{MODELS}:Identity"
    patch_model = f"{MODELS}:IdentityUpdate"
    name_rule = r"[A-Za-z0-9][\w-]{2,127}"

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Make the principal; an identity that is created again gets another one."""
        properties = resource.properties
        if old:
            before = old["properties"]
            properties |= {key: before[key] for key in ("tenantId", "principalId", "clientId")}
            return
        principal = str(uuid4())
        principals.add(call.world, principal)
        properties |= {
            "tenantId": call.caller.tenant,
            "principalId": principal,
            "clientId": str(uuid4()),
            "isolationScope": properties.get("isolationScope", "None"),
        }

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""

    def removed(self, world: World, resource: Resource) -> None:
        """Forget the principal; its role assignments stay."""
        principals.remove(world, resource.properties["principalId"])


def find(world: World, id_: str) -> Resource | None:
    """Return the identity with an id, with principalId and clientId in its properties; None if unknown."""
    found = store(world).find(id_)
    return found if found and found.type == TYPE and not found.deleting else None


def make(world: World, id_: str, *, region: str, tenant: str, tags: dict[str, str] | None = None) -> Resource:
    """Make an identity without a call, as services do for themselves."""
    principal = str(uuid4())
    principals.add(world, principal)
    document = {
        "id": id_,
        "name": id_.rpartition("/")[2],
        "type": TYPE,
        "location": region,
        "tags": tags or {},
        "properties": {"tenantId": tenant, "principalId": principal, "clientId": str(uuid4())},
    }
    made = Resource(id=id_, type=TYPE, document=document, made_at=world.now(), changed_at=world.now())
    store(world).add(made)
    return made
