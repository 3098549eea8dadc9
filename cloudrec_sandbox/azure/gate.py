"""The checks of a call in ARM: the caller, the subscription, the rate, the API version; then its handler."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure import crud, rates, rules
from cloudrec_sandbox.azure.arm import operations, registry
from cloudrec_sandbox.azure.arm.call import Call
from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.identity import entra, tokens
from cloudrec_sandbox.azure.services import providers, subscriptions
from cloudrec_sandbox.azure.services.authorization import enforcement
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.target import Target
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.core.world import World

_CORE = "https://management.core.windows.net"
_CHANGES = ("PUT", "PATCH")


def pass_through(world: World, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
    """Return ARM's answer; ArmError for a refusal."""
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


@registry.answers
def _routed(call: Call) -> Reply:
    type_ = call.path.type.lower()
    known = registry.routes.get((call.target.method, type_))
    if known is not None:
        rules.check_version(call, known[0], ())
        enforcement.check(call)
        answer = known[1](call)
        return answer if isinstance(answer, Reply) else json_reply(answer)
    kind = registry.kinds.get(type_)
    if kind is None:
        enforcement.check(call)  # ARM refuses before it asks a provider, also one that this stand-in lacks
        raise _unknown(call)
    rules.check_version(call, kind.type, kind.apis)
    enforcement.check(call)
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
