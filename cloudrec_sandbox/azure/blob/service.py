"""Blob Storage's answer to a request."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm import blob_place
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.blob import access, attempts, data, listing, reads, writes
from cloudrec_sandbox.azure.blob.errors import BlobError, bad_header, missing_header, ordered
from cloudrec_sandbox.azure.blob.request import BlobRequest
from cloudrec_sandbox.azure.services.storage.blob_service import ACCOUNT
from cloudrec_sandbox.azure.services.storage.containers import Graves
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.azure.arm.blob_place import Place
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.azure.arm.target import Target
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.core.world import World

_VERSION = re.compile(r"\d{4}-\d\d-\d\d")
_FIRST_WITH_TOKENS = "2017-11-09"
_HANDLERS: dict[str, Callable[[BlobRequest], Reply]] = {
    "List Blobs": listing.blobs,
    "Get Blob": reads.get,
    "Get Blob Properties": reads.properties,
    "Get Blob Metadata": reads.metadata,
    "Get Block List": reads.block_list,
    "Put Blob": writes.put_blob,
    "Put Block": writes.put_block,
    "Put Block List": writes.put_block_list,
    "Set Blob Metadata": writes.set_metadata,
    "Delete Blob": writes.delete,
}


def answer(world: World, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
    """Return Blob Storage's answer; it never fails."""
    try:
        if fault is not None and fault.kind not in ("lost", "async"):
            raise ordered(fault)
        reply = _answer(world, target, request)
    except BlobError as error:
        reply = error.reply()
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = (*reply.headers, ("x-ms-version", request.lower.get("x-ms-version", "")), ("Date", date))
    return Reply(status=reply.status, headers=headers, body=reply.body)


def _answer(world: World, target: Target, request: HttpRequest) -> Reply:
    where = blob_place.place_of(target.path.text)
    account = _account(world, where)
    if target.action not in blob_place.PERMISSIONS:
        raise BlobError(
            "NotImplemented", f"This stand-in has no {target.action}.", status=HTTPStatus.NOT_IMPLEMENTED
        )
    _check_version(request)
    sender = access.sender_of(account, request.lower)
    access.check_network(world, account, sender)
    scope = f"{account.id}/blobServices/default"
    if where.container:
        scope += f"/containers/{where.container}"
    found = attempts.attempts_of(
        target.action, where, query=target.query, account=account, is_new=_is_new(world, scope, where)
    )
    is_on_data = blob_place.PERMISSIONS[target.action][1]
    access.check_role(world, sender, found, scope, is_on_data=is_on_data)
    if not where.container:
        raise BlobError(
            "NotImplemented", "This stand-in lists no containers.", status=HTTPStatus.NOT_IMPLEMENTED
        )
    container = _container(world, scope)
    if target.action == "Get Container Properties":
        return _properties(container)
    handler = _HANDLERS[target.action]
    return handler(
        BlobRequest(
            world=world,
            place=where,
            http=request,
            query=target.query,
            data=data.container_of(world, scope),
            has_folders=bool(account.properties.get("isHnsEnabled")),
        )
    )


def _account(world: World, where: Place) -> Resource:
    accounts = store(world).of_type(ACCOUNT)
    found = next((each for each in accounts if each.name == where.account), None)
    if found is None or found.properties.get("provisioningState") != "Succeeded":
        # At Azure an account that does not exist has no host name.
        raise BlobError(
            "ResourceNotFound",
            f"The host {where.account}.blob.core.windows.net does not exist.",
            status=HTTPStatus.NOT_FOUND,
        )
    return found


def _container(world: World, id_: str) -> Resource:
    found = store(world).find(id_)
    if found is not None:
        return found
    if world.state(Graves).free_at.get(id_.lower(), 0.0) > world.now():
        raise BlobError(
            "ContainerBeingDeleted", "The specified container is being deleted.", status=HTTPStatus.CONFLICT
        )
    raise BlobError(
        "ContainerNotFound", "The specified container does not exist.", status=HTTPStatus.NOT_FOUND
    )


def _is_new(world: World, container: str, where: Place) -> bool:
    """Return whether no blob of the name exists."""
    there = store(world).find(container) is not None
    return not there or where.name not in data.container_of(world, container).blobs


def _properties(container: Resource) -> Reply:
    metadata = container.properties.get("metadata") or {}
    headers = [
        ("ETag", f'"{container.etag}"'),
        ("Last-Modified", data.moment(container.changed_at)),
        ("x-ms-lease-status", "unlocked"),
        ("x-ms-lease-state", "available"),
        ("x-ms-has-immutability-policy", "false"),
        ("x-ms-has-legal-hold", "false"),
        *((f"x-ms-meta-{name}", value) for name, value in metadata.items()),
    ]
    return Reply(headers=headers)


def _check_version(request: HttpRequest) -> None:
    """Refuse a request without a version of the service, or with one that knows no tokens."""
    version = request.lower.get("x-ms-version", "")
    if not version:
        raise missing_header("x-ms-version")
    if not _VERSION.fullmatch(version) or version < _FIRST_WITH_TOKENS:
        raise bad_header("x-ms-version", version)
