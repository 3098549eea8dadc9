"""Types of resources: how one is created, changed and removed, how long that takes, what it refuses."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.store import store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.operations import Operation
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World


class Kind:
    """One type of resource. The defaults fit most types; a subclass overrides what is different."""

    type: ClassVar[str]  # "Microsoft.Network/virtualNetworks/subnets"
    apis: ClassVar[Sequence[str]]  # the API versions that it accepts
    model: ClassVar[str] = ""  # of PUT's body, for `bodies.faults`
    patch_model: ClassVar[str] = ""  # of PATCH's body; '' if the type has no PATCH
    name_rule: ClassVar[str] = r"[\w.()-]{1,80}"
    is_located: ClassVar[bool] = True  # it has a location, one of `regions`, which never changes
    regions: ClassVar[Sequence[str]] = ()  # () means all
    takes_tags: ClassVar[bool] = True
    needs_group: ClassVar[bool] = True
    is_tracked: ClassVar[bool] = True  # a group's list of resources has it, unless it is part of another
    is_shown: ClassVar[bool] = True  # in /_control/state
    # Names of durations; '' if the change is done when the call returns.
    create_time: ClassVar[str] = ""
    update_time: ClassVar[str] = ""
    delete_time: ClassVar[str] = ""
    patch_time: ClassVar[str | None] = None  # None: as an update by PUT
    # The headers by which a PUT names its operation: "azure-async", "location", or both.
    polled_by: ClassVar[Sequence[str]] = ("azure-async",)
    create_status: ClassVar[int] = HTTPStatus.CREATED
    update_status: ClassVar[int] = HTTPStatus.OK
    retry_after: ClassVar[int] = 10  # virtual seconds between two polls
    malformed: ClassVar[str] = "InvalidRequestContent"  # the error code for a malformed body
    page: ClassVar[int] = 100  # rows in a page of a list

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse a PUT, or a PATCH merged with the present document, by raising ArmError."""

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Add defaults and read-only members to `resource.document`, which has the body already.

        `old` is the document that it replaces.
        """

    def time(self, resource: Resource, verb: str) -> str:
        """Return the duration's name for a verb: create, update (by PUT), patch; '' if it is done at once."""
        if verb == "patch" and self.patch_time is not None:
            return self.patch_time
        return self.create_time if verb == "create" else self.update_time

    def begun(self, call: Call, resource: Resource, operation: Operation) -> None:
        """Do what a client's operation does when it begins."""

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Do what an operation does when it ends; an ArmError makes it fail."""

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Do what a failed operation leaves behind."""

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse the deletion of a resource in use, by raising ArmError; a group's deletion calls it."""

    def before_delete(self, world: World, resource: Resource) -> None:
        """Do what a deletion does when it begins."""

    def schedule_delete(self, world: World, resource: Resource, operation: Operation) -> None:
        """Let the deletion end after its duration."""
        world.after(world.duration(self.delete_time), operations.end, operation.id)

    def interrupt(self, world: World, resource: Resource, operation: Operation) -> bool:
        """End the operation that holds the resource, as a deletion may; return False to refuse it."""
        return False

    def removed(self, world: World, resource: Resource) -> None:
        """Do what follows when the resource is gone."""

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """Return the document as GET shows it."""
        return {**resource.document, "etag": f'W/"{resource.etag}"'}

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Yield the permissions that a PUT needs on other resources: actions and ids."""
        return ()

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """Yield the resources that must have no other operation during a write: itself, or its parent too."""
        found = store(world).find(path.text)
        return [found] if found else []

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """Return the refusal for a resource that another operation holds."""
        return ArmError(
            "AnotherOperationInProgress",
            f"Another operation on this or dependent resource is in progress. To retrieve status of the "
            f"operation use uri: {operation.id}. ({operation.verb} of {resource.name})",
            status=HTTPStatus.CONFLICT,
        )

    def unmatched(self, header: str) -> ArmError:
        """Return the refusal for an If-Match or If-None-Match that does not match."""
        return ArmError(
            "PreconditionFailed",
            f"The condition '{{{header}}}' in the request header is not satisfied.",
            status=HTTPStatus.PRECONDITION_FAILED,
        )

    def missing(self, path: Path) -> ArmError | None:
        """Return the refusal of a GET; None for ARM's own."""
        return None

    def mark(self, resource: Resource, state: str) -> None:
        """Set the provisioning state that the resource shows."""
        resource.properties["provisioningState"] = state
