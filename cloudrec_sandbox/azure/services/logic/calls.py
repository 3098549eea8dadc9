"""The HTTP calls of workflows to Azure Resource Manager, as a managed identity.

Source: "Authenticate access and connections to Azure resources with managed identities".

`workflow_faults` of /_control: statuses that the next calls of a method get instead of an answer:
{"GET": [503, 403]}.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec_sandbox.azure.arm import registry, target
from cloudrec_sandbox.azure.arm.call import Call, Caller
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.identity import identities
from cloudrec_sandbox.core.http import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.core.world import World

_ARM = "management.azure.com"


@dataclass
class Ordered:
    """The statuses that the next calls get, by method."""

    statuses: dict[str, list[int]] = field(default_factory=dict)


def _write(world: World, statuses: Mapping[str, Any]) -> None:
    world.state(Ordered).statuses = {
        method: [int(each) for each in found] for method, found in statuses.items()
    }


registry.setting("workflow_faults", read=lambda world: dict(world.state(Ordered).statuses), write=_write)


def made(world: World, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Make an HTTP call; return its outputs: statusCode and body."""
    ordered = world.state(Ordered).statuses.get(inputs["method"])
    if ordered:
        return {"statusCode": ordered.pop(0), "body": "ordered by /_control"}
    authentication = inputs.get("authentication") or {}
    where = urlsplit(inputs["uri"])
    identity = identities.find(world, str(authentication.get("identity") or ""))
    if where.hostname != _ARM or identity is None or authentication.get("audience") != f"https://{_ARM}/":
        return {"statusCode": int(HTTPStatus.UNAUTHORIZED), "body": None}
    body = inputs.get("body")
    request = HttpRequest(
        method=inputs["method"],
        target=f"{where.path}?{where.query}",
        headers={"Host": _ARM, **(inputs.get("headers") or {})},
        body=b"" if body is None else json.dumps(body).encode(),
    )
    found = target.identify(request)
    caller = Caller(
        principal=identity.properties["principalId"],
        client=identity.properties["clientId"],
        tenant=identity.properties["tenantId"],
    )
    if not access.has(world, caller.principal, found.iam_action, found.path.text):
        return {"statusCode": int(HTTPStatus.FORBIDDEN), "body": None}
    try:
        reply = registry.answer(Call(world=world, target=found, request=request, caller=caller))
    except ArmError as error:
        reply = error.reply()
    return {"statusCode": int(reply.status), "body": json.loads(reply.body) if reply.body else None}
