"""The blob service of an account, which exists from the account's creation."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

APIS = ("2026-09-01", "2025-08-01", "2025-01-01", "2024-01-01")
MODELS = "azure.mgmt.storage.models"
ACCOUNT = "Microsoft.Storage/storageAccounts"
TYPE = f"{ACCOUNT}/blobServices"
_DAYS = range(1, 366)


def make(world: World, account: Resource) -> None:
    """Make an account's service."""
    id_ = f"{account.id}/blobServices/default"
    if store(world).find(id_) is not None:
        return
    properties = {
        "cors": {"corsRules": []},
        "deleteRetentionPolicy": {"allowPermanentDelete": False, "enabled": False},
    }
    document = {"id": id_, "name": "default", "type": TYPE, "properties": properties}
    now = world.now()
    store(world).add(Resource(id=id_, type=TYPE, document=document, made_at=now, changed_at=now))


def account_of(world: World, id_: str) -> Resource | None:
    """Return the account of a service, or of a container in it."""
    head, _, _ = id_.lower().partition("/blobservices")
    return store(world).find(head)


def refuse_unready(account: Resource | None) -> None:
    """Raise ArmError while an account is not complete."""
    if account is not None and account.properties.get("provisioningState") != "Succeeded":
        raise ArmError(
            "StorageAccountIsNotProvisioned",
            "The storage account provisioning state must be 'Succeeded' before executing the operation.",
            status=HTTPStatus.CONFLICT,
        )


def days_kept(world: World, account: Resource) -> int:
    """Return for how many days an account keeps deleted containers; 0 for not at all."""
    service = store(world).find(f"{account.id}/blobServices/default")
    policy = (service.properties.get("containerDeleteRetentionPolicy") or {}) if service else {}
    return int(policy.get("days") or 0) if policy.get("enabled") else 0


@register
class BlobServices(Kind):
    """Services."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = APIS
    model = f"{MODELS}:BlobServiceProperties"
    name_rule = r"default"
    is_located = takes_tags = is_shown = is_tracked = False

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the days, and what a hierarchical account does not support."""
        properties, account = body.get("properties") or {}, account_of(call.world, call.path.text)
        refuse_unready(account)
        for member in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
            policy = properties.get(member) or {}
            if policy.get("enabled") and policy.get("days") not in _DAYS:
                raise ArmError(
                    "InvalidXmlDocument",
                    f"XML specified is not syntactically valid: {member}.days {policy.get('days')} is not in "
                    f"{_DAYS[0]}-{_DAYS[-1]}.",
                )
        if account and account.properties.get("isHnsEnabled") and properties.get("isVersioningEnabled"):
            raise ArmError(
                "FeatureNotSupportedForAccount",
                "Versioning is not supported for the account: it has a hierarchical namespace.",
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults."""
        resource.properties.setdefault("cors", {"corsRules": []})
        policy = resource.properties.setdefault("deleteRetentionPolicy", {"enabled": False})
        policy.setdefault("allowPermanentDelete", False)

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document with the account's SKU."""
        account = account_of(world, resource.id)
        return {**resource.document, "sku": account.document["sku"] if account else None}
