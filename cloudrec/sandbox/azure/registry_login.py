"""A registry's own door: POST /oauth2/exchange takes a token of Entra and gives one of the registry.

A registry is known by the `service` that is asked for, since all of them are at this one address.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from cloudrec.sandbox.azure import tokens
from cloudrec.sandbox.azure.errors import ArmError
from cloudrec.sandbox.azure.store import store
from cloudrec.sandbox.http import Reply, json_reply

if TYPE_CHECKING:
    from cloudrec.sandbox.http import HttpRequest
    from cloudrec.sandbox.world import World

_TYPE = "Microsoft.ContainerRegistry/registries"
_AUDIENCES = ("https://containerregistry.azure.net", tokens.AUDIENCE)


def exchange(world: World, request: HttpRequest) -> Reply:
    """Answer with a refresh token, with which a client logs in."""
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
        told = "authentication required, visit https://aka.ms/acr/authorization for more information."
        return _refused("UNAUTHORIZED", told, HTTPStatus.UNAUTHORIZED)
    made = tokens.make(
        tenant=who.tenant, client=who.client, principal=who.principal, audience=service, issuer=service
    )
    return json_reply({"refresh_token": made})


def _refused(code: str, message: str, status: int = HTTPStatus.BAD_REQUEST) -> Reply:
    return json_reply({"errors": [{"code": code, "message": message}]}, status)
