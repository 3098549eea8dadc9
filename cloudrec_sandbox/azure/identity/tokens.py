"""Access tokens as Entra makes them and ARM reads them: JSON web tokens, signed with this process's key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from cloudrec_sandbox.azure.arm.call import Caller
from cloudrec_sandbox.azure.arm.errors import ArmError

AUDIENCE = "https://management.azure.com"
STORAGE = "https://storage.azure.com"
KUBERNETES = "6dae42f8-4368-4678-94ff-3960e28e3630"  # the application of AKS's API servers, in every tenant
CLUSTER = "sandbox_cluster"  # claim: the cluster whose service account exchanged its token for this one
LIFETIME_S = 3599
_KEY = secrets.token_bytes(32)
_PARTS = 3


def make(*, tenant: str, client: str, principal: str, audience: str, issuer: str, cluster: str = "") -> str:
    """Return a token for an application's principal. Its times are real: clients compare their clocks."""
    now = int(time.time())
    claims = {
        "aud": audience,
        "iss": issuer,
        "iat": now,
        "nbf": now,
        "exp": now + LIFETIME_S,
        "appid": client,
        "oid": principal,
        "sub": principal,
        "tid": tenant,
        "idtyp": "app",
        "ver": "1.0",
        **({CLUSTER: cluster} if cluster else {}),
    }
    signed = f"{prefix(principal, audience)}{_encoded(claims)}"
    return f"{signed}.{_signature(signed)}"


def prefix(principal: str, audience: str) -> str:
    """Return what all tokens of a principal for an audience begin with, and no other token does.

    By it a linked API server knows a user before the user's first token is made.
    """
    return f"{_encoded({'typ': 'JWT', 'alg': 'HS256', 'kid': f'{principal.lower()} {audience}'})}."


def valid(token: str) -> dict[str, Any] | None:
    """Return the claims of a token that this process has signed and that has not expired; else None."""
    claims = _read(token)
    return claims if claims and claims["exp"] > time.time() else None


def caller(authorization: str, tenant: str, authority: str, audiences: tuple[str, ...]) -> Caller:
    """Return the caller of an Authorization header; refused with 401 for another tenant's token."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise _refused(
            "AuthenticationFailed",
            "Authentication failed. The 'Authorization' header is missing.",
            authority,
            tenant,
        )
    claims = _read(token)
    if claims is None:
        raise _refused("InvalidAuthenticationToken", "The access token is invalid.", authority, tenant)
    if claims["exp"] < time.time():
        raise _refused(
            "ExpiredAuthenticationToken",
            "The access token expiry UTC time is earlier than current UTC time.",
            authority,
            tenant,
        )
    if claims["aud"].rstrip("/") not in audiences:
        raise _refused(
            "InvalidAuthenticationTokenAudience",
            f"The access token has been obtained for wrong audience or resource '{claims['aud']}'. It "
            f"should exactly "
            f"match with one of the allowed audiences '{','.join(audiences)}'.",
            authority,
            tenant,
        )
    if claims["tid"] != tenant:
        raise _refused(
            "InvalidAuthenticationTokenTenant",
            f"The access token is from the wrong issuer 'https://sts.windows.net/{claims['tid']}/'. It "
            f"must match the "
            f"tenant 'https://sts.windows.net/{tenant}/' associated with this subscription.",
            authority,
            tenant,
        )
    return Caller(principal=claims["oid"], client=claims["appid"], tenant=claims["tid"])


@lru_cache(maxsize=256)
def _read(token: str) -> dict[str, Any] | None:
    """Return the claims of a token that this process has signed; None for any other."""
    parts = token.split(".")
    if len(parts) != _PARTS or not hmac.compare_digest(parts[2], _signature(".".join(parts[:2]))):
        return None
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    return claims


def _encoded(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _signature(text: str) -> str:
    digest = hmac.new(_KEY, text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _refused(code: str, message: str, authority: str, tenant: str) -> ArmError:
    challenge = f'Bearer authorization_uri="{authority}/{tenant}", error="invalid_token"'
    headers = [("WWW-Authenticate", challenge)]
    return ArmError(code, message, status=HTTPStatus.UNAUTHORIZED, headers=headers)
