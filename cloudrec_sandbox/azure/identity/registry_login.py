"""A registry's own login: POST /oauth2/exchange takes a token of Entra and returns one of the registry.

The request's `service` names the registry, since all registries are at this one address.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.identity import tokens
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.core.world import World

_TYPE = "Microsoft.ContainerRegistry/registries"
_AUDIENCES = ("https://containerregistry.azure.net", tokens.AUDIENCE)


def exchange(world: World, request: HttpRequest) -> Reply:
    """Return a refresh token, with which a client logs in."""
    form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
    if form.get("grant_type") != "access_token":
        return _refused("UNSUPPORTED", f"grant type {form.get('grant_type')!r} is not supported here")
    service = form.get("service", "").lower()
    there = {str(each.properties["loginServer"]) for each in store(world).of_type(_TYPE)}
    if service not in there:
        return _refused("NAME_UNKNOWN", f"registry {service!r} is not known", HTTPStatus.NOT_FOUND)
    try:
        who = tokens.caller(f"Bearer {form.get('access_token', '')}", form.get("tenant", ""), "", _AUDIENCES)
    except ArmError:
        message = "authentication required, visit https://aka.ms/acr/authorization for more information."
        return _refused("UNAUTHORIZED", message, HTTPStatus.UNAUTHORIZED)
    made = tokens.make(
        tenant=who.tenant, client=who.client, principal=who.principal, audience=service, issuer=service
    )
    return json_reply({"refresh_token": made})


def _refused(code: str, message: str, status: int = HTTPStatus.BAD_REQUEST) -> Reply:
    return json_reply({"errors": [{"code": code, "message": message}]}, status)
