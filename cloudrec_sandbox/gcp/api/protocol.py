"""What a request is for, over REST or gRPC, and the replies of both."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf.empty_pb2 import Empty

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.gcp.api import errors, registry, schemas

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.gcp.api.errors import GcpError
    from cloudrec_sandbox.gcp.api.registry import Rest, Rpc

GRPC = "application/grpc"
_GUESSES = {
    "/compute/": "compute",
    "/storage/": "storage",
    "/upload/storage/": "storage",
    "/v3/": "cloudresourcemanager",
    "/google.container.": "container",
    "/google.cloud.lustre.": "lustre",
    "/google.longrunning.": "operations",
}


@dataclass(kw_only=True)
class Target:
    """What a request is for; `method` is None for an unknown one.

    `iam_action` is the permission that it needs, unless that depends on the call's content.
    """

    service: str
    action: str
    iam_action: str = ""
    grpc: bool = False
    method: Rest | Rpc | None = None
    params: dict[str, str] = field(default_factory=dict)


def identify(request: HttpRequest) -> Target:
    """Return the service and the method."""
    path = urlsplit(request.target).path
    grpc = request.lower.get("content-type") == GRPC
    method: Rest | Rpc | None
    params: dict[str, str] = {}
    if grpc:
        method = registry.find_rpc(path)
    else:
        found = registry.find_rest(request.method, path)
        method, params = found or (None, {})
    if method is None:
        service = next((name for front, name in _GUESSES.items() if path.startswith(front)), "unknown")
        action = path.rpartition("/")[2] if grpc else f"{request.method} {path}"
        return Target(service=service, action=action, grpc=grpc)
    return Target(
        service=method.service,
        action=method.action,
        iam_action=method.permission,
        grpc=grpc,
        method=method,
        params=params,
    )


def serialise(target: Target, result: Any) -> Reply:  # noqa: ANN401 - what handlers return
    """Return a handler's result as a reply."""
    if isinstance(result, Reply):
        return result
    if not target.grpc:
        return json_reply(result if isinstance(result, dict) else schemas.shown(result))
    message = Empty() if result is None else result
    plus = hasattr(type(message), "serialize")
    body = type(message).serialize(message) if plus else message.SerializeToString()
    return Reply(headers=(("grpc-status", "0"),), body=body)


def refuse(target: Target, error: GcpError) -> Reply:
    """Return a refusal as a reply."""
    if not target.grpc:
        return errors.reply(error, target.service)
    status = errors.status_of(error, target.service)
    headers = [("grpc-status", str(error.number)), ("grpc-message", error.message)]
    if status.details:
        details = base64.b64encode(status.SerializeToString()).decode()
        headers.append(("grpc-status-details-bin", details))
    return Reply(status=error.http, headers=headers)
