"""What the types of Microsoft.Network have in common."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import durations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.store import Resource

MODELS = "azure.mgmt.network.models"

durations(
    {
        "network-create": 5,
        "network-update": 5,
        "network-delete": 10,
        "nat-create": 30,
        "nat-update": 15,
        "nat-delete": 30,
    }
)


class NetworkKind(Kind):
    """A type of Microsoft.Network."""

    apis: ClassVar[Sequence[str]] = ("2026-03-01", "2025-05-01", "2025-01-01", "2024-10-01")
    patch_model = f"{MODELS}:TagsObject"
    name_rule = r"[A-Za-z0-9](?:[\w.-]{0,78}\w)?"
    create_time, update_time, delete_time = "network-create", "network-update", "network-delete"
    patch_time = ""  # tags change at once
    malformed = "InvalidRequestFormat"

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the error for a resource under another operation: a 429 that is not throttling."""
        verb = {"create": "Put", "update": "Put", "delete": "Delete"}.get(operation.verb, operation.verb)
        return ArmError(
            "RetryableErrorDueToAnotherOperation",
            f"Operation on resource {resource.id} cannot proceed because another operation {verb}Operation "
            f"({operation.id}) on this or a dependent resource is in progress. Please retry the operation.",
            status=HTTPStatus.TOO_MANY_REQUESTS,
            headers=[("Retry-After", "10")],
        )


def guid(resource: Resource) -> str:
    """Return a resource's own GUID, which changes when it is created again."""
    return str(uuid5(NAMESPACE_URL, f"{resource.id}@{resource.made_at}"))
