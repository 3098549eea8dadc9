"""Containers of an account's blob service.

A container's name is taken for `container-delete` seconds after its deletion, which itself answers at once.
If the account keeps deleted containers, they are listed with include=deleted until their days are over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from cloudrec_sandbox.azure import crud, rules
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.pages import page
from cloudrec_sandbox.azure.arm.registry import Entry, durations, forgotten, inventory, kinds, route
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services.storage import blob_service
from cloudrec_sandbox.azure.services.storage.blob_service import ACCOUNT, APIS, MODELS, account_of
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.paths import Path
    from cloudrec_sandbox.core.http import Reply
    from cloudrec_sandbox.core.world import World

durations({"container-delete": 30})

TYPE = f"{blob_service.TYPE}/containers"
_NAME = re.compile(r"\$(root|logs|web)|(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_DAY_S = 86400
_PAGE = 5000


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """A deleted container that is kept for some days."""

    document: dict[str, Any]
    gone_at: float
    until: float


@dataclass
class Graves:
    """When names can be used again, by id in lower case; containers that are kept."""

    free_at: dict[str, float] = field(default_factory=dict)
    kept: list[Deleted] = field(default_factory=list)


@register
class Containers(Kind):
    """Containers: created and removed at once; their names are free a while later."""

    type = TYPE
    apis: ClassVar[Sequence[str]] = APIS
    model = patch_model = f"{MODELS}:BlobContainer"
    name_rule = r".*"  # the service itself refuses a name, with its own error
    is_located = takes_tags = is_tracked = False

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the name, that it is free, and that the container is not public."""
        if not _NAME.fullmatch(call.path.name):
            raise _failure("The specifed resource name contains invalid characters.", HTTPStatus.BAD_REQUEST)
        # Storage deletes a container's blobs in the background, and the name is free only after that.
        if old is None and call.world.state(Graves).free_at.get(call.path.key, 0.0) > call.world.now():
            raise _failure("The specified container is being deleted. Try operation later.")
        account = account_of(call.world, call.path.text)
        blob_service.refuse_unready(account)
        public = (body.get("properties") or {}).get("publicAccess") or "None"
        # The account's setting wins over each container's.
        if account and public != "None" and not account.properties.get("allowBlobPublicAccess"):
            raise ArmError(
                "PublicAccessNotPermitted",
                "Public access is not permitted on this storage account.",
                status=HTTPStatus.CONFLICT,
            )

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Fill in the defaults."""
        properties = resource.properties
        properties.setdefault("publicAccess", "None")
        properties |= {
            "lastModifiedTime": as_datetime(call.world.now()).isoformat(),
            "leaseStatus": "Unlocked",
            "leaseState": "Available",
            "hasImmutabilityPolicy": False,
            "hasLegalHold": False,
            "deleted": False,
        }

    def mark(self, resource: Resource, state: str) -> None:
        """Ignore the state: the type shows none."""

    def missing(self, path: Path) -> ArmError:
        """Return the type's own error code."""
        return ArmError(
            "ContainerNotFound",
            f"The specified container does not exist. ({path.name})",
            status=HTTPStatus.NOT_FOUND,
        )

    def before_delete(self, world: World, resource: Resource) -> None:
        """Keep the name for a while, and the container if the account keeps deleted ones."""
        account = account_of(world, resource.id)
        bury(world, resource, days=blob_service.days_kept(world, account) if account else 0)


def bury(world: World, container: Resource, *, days: int) -> None:
    """Delete a container: its name stays taken for a while, and the container is kept for `days`."""
    graves, now = world.state(Graves), world.now()
    graves.free_at[container.key] = now + world.duration("container-delete")
    if days:
        until = now + days * _DAY_S
        graves.kept.append(Deleted(document=dict(container.document), gone_at=now, until=until))


def _failure(message: str, status: int = HTTPStatus.CONFLICT) -> ArmError:
    return ArmError("ContainerOperationFailure", f"{message}\nRequestId:{uuid4()}", status=status)


def kept(world: World, account: str) -> Iterator[Deleted]:
    """Yield the deleted containers that an account still keeps."""
    prefix = f"{account.lower()}/"
    for each in world.state(Graves).kept:
        if each.document["id"].lower().startswith(prefix) and each.until > world.now():
            yield each


@route("GET", TYPE)
def read(call: Call) -> Reply:
    """Return one container, or those of an account, with the deleted ones if include=deleted."""
    kind, account = kinds[TYPE.lower()], account_of(call.world, call.path.text)
    rules.check_version(call, TYPE, APIS)
    if call.path.is_item or account is None:
        return crud.get(call, kind)
    rows = [each.document for each in store(call.world).of_type(TYPE, account.id)]
    if call.query.get("$include") == "deleted":
        rows += [_row(each, call.world.now()) for each in kept(call.world, account.id)]
    return page(call, rows, int(call.query.get("$maxpagesize") or _PAGE))


def _row(each: Deleted, now: float) -> dict[str, Any]:
    properties = {
        **each.document["properties"],
        "deleted": True,
        "deletedTime": as_datetime(each.gone_at).isoformat(),
        "remainingRetentionDays": int((each.until - now) // _DAY_S),
        "version": f"{int(each.gone_at):016X}",
    }
    return {**each.document, "properties": properties}


@forgotten
def follow_account(world: World, gone: Resource) -> None:
    """Remove what an account keeps, with the account."""
    if gone.type == ACCOUNT:
        graves, prefix = world.state(Graves), f"{gone.key}/"
        graves.kept = [each for each in graves.kept if not each.document["id"].lower().startswith(prefix)]
        graves.free_at = {key: moment for key, moment in graves.free_at.items() if not key.startswith(prefix)}


@inventory
def soft_deleted(world: World) -> Iterator[Entry]:
    """Yield the kept containers, as pending."""
    for each in world.state(Graves).kept:
        if each.until > world.now():
            yield Entry("storage", "deletedContainers", each.document["id"], pending=True)
