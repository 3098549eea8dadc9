"""What a type of resource is: how it is made, changed and removed, how long that takes, what it refuses."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.sandbox.azure import operations
from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.store import store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.sandbox.azure.call import Call
    from cloudrec.sandbox.azure.operations import Operation
    from cloudrec.sandbox.azure.paths import Path
    from cloudrec.sandbox.azure.store import Resource
    from cloudrec.sandbox.world import World


class Kind:
    """One type. What is set here holds for most; a type of its own overrides what is different."""

    type: ClassVar[str]  # "Microsoft.Network/virtualNetworks/subnets"
    apis: ClassVar[Sequence[str]]  # versions of the API that it takes
    model: ClassVar[str] = ""  # of PUT's body, for `bodies.faults`
    patch_model: ClassVar[str] = ""  # of PATCH's body; '' where there is no PATCH
    name_rule: ClassVar[str] = r"[\w.()-]{1,80}"
    is_located: ClassVar[bool] = True  # it has a location, one of `regions`, for ever
    regions: ClassVar[Sequence[str]] = ()  # () means all
    takes_tags: ClassVar[bool] = True
    needs_group: ClassVar[bool] = True
    is_tracked: ClassVar[bool] = True  # in a group's list of resources, where it is no part of another
    is_shown: ClassVar[bool] = True  # in /_control/state
    # Names of durations; '' where it is done when the call returns.
    create_time: ClassVar[str] = ""
    update_time: ClassVar[str] = ""
    delete_time: ClassVar[str] = ""
    patch_time: ClassVar[str | None] = None  # None: as an update by PUT
    # How a PUT tells its operation: so, with "location", or by that alone.
    tells: ClassVar[Sequence[str]] = ("azure-async",)
    create_status: ClassVar[int] = HTTPStatus.CREATED
    update_status: ClassVar[int] = HTTPStatus.OK
    retry_after: ClassVar[int] = 10  # virtual seconds between two looks
    malformed: ClassVar[str] = "InvalidRequestContent"  # the code of a body that is none
    page: ClassVar[int] = 100  # rows in a page of a list

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse a PUT, or a PATCH merged with what there is, by raising ArmError."""

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Complete `resource.document`, which has the body by now, with defaults and what is read-only.

        `old` is the document that it replaces.
        """

    def time(self, resource: Resource, verb: str) -> str:
        """The name of the duration of a verb: create, update (by PUT), patch; '' where it is done at once."""
        if verb == "patch" and self.patch_time is not None:
            return self.patch_time
        return self.create_time if verb == "create" else self.update_time

    def begun(self, call: Call, resource: Resource, operation: Operation) -> None:
        """Do what the begin of a client's operation brings, beyond its end."""

    def finish(self, world: World, resource: Resource, operation: Operation) -> None:
        """Do what the end of an operation brings; raising ArmError is its failure."""

    def fail(self, world: World, resource: Resource, operation: Operation) -> None:
        """Do what the failure of an operation leaves."""

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse the deletion of what is in use, by raising ArmError. A group's deletion asks it too."""

    def before_delete(self, world: World, resource: Resource) -> None:
        """Do what the begin of a deletion brings."""

    def schedule_delete(self, world: World, resource: Resource, operation: Operation) -> None:
        """Let the deletion go its way: it ends after its duration."""
        world.after(world.duration(self.delete_time), operations.end, operation.id)

    def interrupt(self, world: World, resource: Resource, operation: Operation) -> bool:
        """End the operation that has the resource, as a deletion does; False where it refuses instead."""
        return False

    def removed(self, world: World, resource: Resource) -> None:
        """Do what its being gone brings."""

    def show(self, world: World, resource: Resource) -> dict[str, Any]:
        """The document as GET tells it."""
        return {**resource.document, "etag": f'W/"{resource.etag}"'}

    def linked(self, call: Call, body: dict[str, Any]) -> Iterable[tuple[str, str]]:
        """Permissions that a PUT needs on other resources than its own: actions and ids."""
        return ()

    def locks(self, world: World, path: Path) -> Iterable[Resource]:
        """What must not be under another operation while this is written: itself, or its parent too."""
        found = store(world).find(path.text)
        return [found] if found else []

    def busy(self, resource: Resource, operation: Operation) -> ArmError:
        """The refusal where another operation has what this one needs."""
        return ArmError(
            "AnotherOperationInProgress",
            f"Another operation on this or dependent resource is in progress. To retrieve status of the "
            f"operation use uri: {operation.id}. ({operation.verb} of {resource.name})",
            status=HTTPStatus.CONFLICT,
        )

    def unmatched(self, header: str) -> ArmError:
        """The refusal where If-Match or If-None-Match is not satisfied."""
        return ArmError(
            "PreconditionFailed",
            f"The condition '{{{header}}}' in the request header is not satisfied.",
            status=HTTPStatus.PRECONDITION_FAILED,
        )

    def missing(self, path: Path) -> ArmError | None:
        """The refusal of a GET, where it is not ARM's own."""
        return None

    def mark(self, resource: Resource, state: str) -> None:
        """Let the resource show its provisioning state."""
        resource.properties["provisioningState"] = state
