"""Access tokens as Entra makes them and ARM reads them: JSON web tokens, signed with a key of ours."""

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

from cloudrec.sandbox.azure.call import Caller
from cloudrec.sandbox.azure.errors import ArmError

AUDIENCE = "https://management.azure.com"
LIFETIME_S = 3599
_KEY = secrets.token_bytes(32)
_PARTS = 3


def make(*, tenant: str, client: str, principal: str, audience: str, issuer: str) -> str:
    """A token for an application's principal. Its times are real: clients have real clocks."""
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
    }
    head = _encoded({"typ": "JWT", "alg": "HS256", "kid": "sandbox"})
    signed = f"{head}.{_encoded(claims)}"
    return f"{signed}.{_signature(signed)}"


def caller(authorization: str, tenant: str, authority: str, audiences: tuple[str, ...]) -> Caller:
    """Who has the token of an Authorization header; refused with 401 where it is none of this tenant's."""
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
    """The claims of a token that this process has signed."""
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
