"""The way of a call through ARM: who calls, which subscription, how often, which version, who answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec.sandbox.azure import crud, entra, operations, rates, registry, rules, tokens
from cloudrec.sandbox.azure.call import Call
from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.services import permissions, providers, subscriptions
from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.target import Target
    from cloudrec.sandbox.faults import Fault
    from cloudrec.sandbox.http import HttpRequest
    from cloudrec.sandbox.world import World

_CORE = "https://management.core.windows.net"
_CHANGES = ("PUT", "PATCH")


def pass_through(world: World, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
    """ARM's answer; ArmError where it refuses."""
    base = f"https://{request.lower.get('host', '127.0.0.1')}"
    audiences = (tokens.AUDIENCE, _CORE, base)
    caller = tokens.caller(request.lower.get("authorization", ""), entra.TENANT, base, audiences)
    call = Call(world=world, target=target, request=request, caller=caller, fault=fault)
    subscriptions.check(call)
    rates.check(world, target)
    if target.is_poll:
        rules.check_version(call, target.path.type, ())
        return operations.poll(call)
    return _routed(call)


def _routed(call: Call) -> Reply:
    type_ = call.path.type.lower()
    known = registry.routes.get((call.target.method, type_))
    if known is not None:
        rules.check_version(call, known[0], ())
        permissions.check(call)
        told = known[1](call)
        return told if isinstance(told, Reply) else json_reply(told)
    kind = registry.kinds.get(type_)
    if kind is None:
        raise _unknown(call)
    rules.check_version(call, kind.type, kind.apis)
    permissions.check(call)
    if call.target.method in _CHANGES:
        providers.check(call, kind.type)
    return crud.answer(call, kind)


def _unknown(call: Call) -> ArmError:
    namespace = call.path.namespace
    if not call.path.types:
        return ArmError(
            "InvalidUriPath", f"The URI path '{call.path.text}' is none.", status=HTTPStatus.NOT_FOUND
        )
    return ArmError(
        "InvalidResourceType",
        f"The resource type '{'/'.join(call.path.types)}' could not be found in the namespace "
        f"'{namespace}' for api "
        f"version '{call.query.get('api-version', '')}': this stand-in has no {call.target.method} of it.",
        status=HTTPStatus.NOT_IMPLEMENTED,
    )
