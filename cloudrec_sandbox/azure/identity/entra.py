"""Entra: discovery of its endpoints; tokens for applications that send a secret or a workload's token.

`clients` of /_control: {CLIENT_ID: {"secret": ..., "object_id": ..., "tenant": ...}} adds service principals,
for tests of permissions; null removes one. The tenant is the subscription's unless set otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from uuid import uuid4

from cloudrec_sandbox.azure.arm.registry import setting
from cloudrec_sandbox.azure.identity import exchange, registry_login, tokens
from cloudrec_sandbox.core.http import Reply, json_reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.target import Target
    from cloudrec_sandbox.core.faults import Fault
    from cloudrec_sandbox.core.http import HttpRequest
    from cloudrec_sandbox.core.world import World

TENANT = "11111111-2222-4333-8444-555555555555"
CLIENT = "66666666-7777-4888-9999-aaaaaaaaaaaa"
SECRET = "sandbox"  # noqa: S105 - valid for this stand-in only
OBJECT = "bbbbbbbb-cccc-4ddd-8eee-ffffffffffff"  # the object id of the first client's service principal


@dataclass(frozen=True, kw_only=True)
class Client:
    """An application and its service principal."""

    secret: str
    principal: str
    tenant: str = TENANT


@dataclass
class Directory:
    """The applications that exist."""

    clients: dict[str, Client] = field(
        default_factory=lambda: {CLIENT: Client(secret=SECRET, principal=OBJECT)}
    )


def answer(world: World, target: Target, request: HttpRequest, fault: Fault | None) -> Reply:
    """Return Entra's answer."""
    if fault is not None and fault.kind not in ("lost", "async"):
        return _ordered(fault)
    base = f"https://{request.lower.get('host', '127.0.0.1')}"
    parts = target.path.text.strip("/").split("/")
    tenant = parts[0]
    if target.action == "Get openid-configuration":
        return _discovery(world, base, tenant)
    if target.action == "Post token":
        return _token(world, base, tenant, request)
    if target.action == "Post exchange":
        return registry_login.exchange(world, request)
    if target.action == "Get instance":
        found = {"tenant_discovery_endpoint": f"{base}/{TENANT}/v2.0/.well-known/openid-configuration"}
        return json_reply({**found, "api-version": "1.1", "metadata": []})
    return _refused("invalid_request", 900144, f"there is no {target.path.text}", HTTPStatus.NOT_FOUND)


def _tenants(world: World) -> set[str]:
    return {TENANT, *(client.tenant for client in world.state(Directory).clients.values())}


def _unknown_tenant(tenant: str) -> Reply:
    return _refused(
        "invalid_request",
        90002,
        f"Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing "
        f"into the "
        "correct cloud. Check with your subscription administrator, this may happen if there are no active "
        "subscriptions for the tenant.",
    )


def _discovery(world: World, base: str, tenant: str) -> Reply:
    if tenant.lower() not in _tenants(world):
        return _unknown_tenant(tenant)
    root = f"{base}/{tenant}"
    return json_reply(
        {
            "issuer": f"{root}/v2.0",
            "authorization_endpoint": f"{root}/oauth2/v2.0/authorize",
            "token_endpoint": f"{root}/oauth2/v2.0/token",
            "device_authorization_endpoint": f"{root}/oauth2/v2.0/devicecode",
            "jwks_uri": f"{root}/discovery/v2.0/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
            "response_types_supported": ["code", "id_token"],
            "tenant_region_scope": "NA",
        }
    )


def _token(world: World, base: str, tenant: str, request: HttpRequest) -> Reply:
    if tenant.lower() not in _tenants(world):
        return _unknown_tenant(tenant)
    form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
    if form.get("grant_type") != "client_credentials":
        return _refused("unsupported_grant_type", 70003, "The app requested an unsupported grant type.")
    if form.get("client_assertion_type") == exchange.ASSERTION:
        try:
            found = exchange.workload(world, form)
        except exchange.ExchangeError as error:
            return _refused("invalid_client", error.number, error.message, HTTPStatus.UNAUTHORIZED)
        return _issued(base, TENANT, form, principal=found.principal, cluster=found.cluster)
    return _by_secret(world, base, tenant, form)


def _by_secret(world: World, base: str, tenant: str, form: Mapping[str, str]) -> Reply:
    client = world.state(Directory).clients.get(form.get("client_id", "").lower())
    if client is None or client.tenant != tenant.lower():
        return _refused(
            "unauthorized_client",
            700016,
            f"Application with identifier '{form.get('client_id')}' was not found in the directory "
            f"'{tenant}'. This "
            "can happen if the application has not been installed by the administrator of the tenant or "
            "consented "
            "to by any user in the tenant. You may have sent your authentication request to the wrong "
            "tenant.",
        )
    if form.get("client_secret") != client.secret:
        return _refused(
            "invalid_client",
            7000215,
            "Invalid client secret provided. Ensure the secret being sent in the request is the client "
            "secret "
            f"value, not the client secret ID, for a secret added to app '{form['client_id']}'.",
            HTTPStatus.UNAUTHORIZED,
        )
    return _issued(base, client.tenant, form, principal=client.principal)


def _issued(base: str, tenant: str, form: Mapping[str, str], *, principal: str, cluster: str = "") -> Reply:
    scope = form.get("scope", "").split(" ")[0]
    # Scopes of an application's own token end in this: it gets all that its roles allow.
    if not scope.endswith("/.default"):
        return _refused("invalid_scope", 1002012, f"The provided value for scope {scope} is not valid.")
    made = tokens.make(
        tenant=tenant,
        client=form["client_id"],
        principal=principal,
        audience=scope.removesuffix("/.default"),
        issuer=f"{base}/{tenant}/v2.0",
        cluster=cluster,
    )
    answer = {"token_type": "Bearer", "expires_in": tokens.LIFETIME_S, "ext_expires_in": tokens.LIFETIME_S}
    return json_reply({**answer, "access_token": made})


def _refused(code: str, number: int, message: str, status: int = HTTPStatus.BAD_REQUEST) -> Reply:
    trace = str(uuid4())
    text = f"AADSTS{number}: {message} Trace ID: {trace} Correlation ID: {trace}"
    document = {
        "error": code,
        "error_description": text,
        "error_codes": [number],
        "trace_id": trace,
        "correlation_id": trace,
    }
    return json_reply(document, status)


def _ordered(fault: Fault) -> Reply:
    if fault.kind == "throttle":
        return _refused("invalid_request", 90055, "The request was throttled.", HTTPStatus.TOO_MANY_REQUESTS)
    status = max(fault.status, HTTPStatus.INTERNAL_SERVER_ERROR if fault.kind == "5xx" else 0)
    return _refused("temporarily_unavailable", 90033, fault.message, status)


def _write(world: World, wishes: Mapping[str, Mapping[str, str] | None]) -> None:
    clients = world.state(Directory).clients
    for name, wish in wishes.items():
        if wish is None:
            clients.pop(name.lower(), None)
            continue
        clients[name.lower()] = Client(
            secret=wish["secret"], principal=wish["object_id"], tenant=wish.get("tenant", TENANT)
        )


def _read(world: World) -> dict[str, Any]:
    return {
        name: {"object_id": client.principal, "tenant": client.tenant}
        for name, client in world.state(Directory).clients.items()
    }


setting("clients", read=_read, write=_write)
