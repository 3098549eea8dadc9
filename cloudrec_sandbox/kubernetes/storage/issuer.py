"""Who issues the tokens of service accounts, as JSON web tokens (RFC 7519).

`issuer` of /_control: {"url": ..., "key": ...} is an issuer that others know, and the key with which they
verify its tokens; a cloud's managed control plane has one. At Azure there is a webhook besides: {"azure":
{"tenant": ..., "authority": ...}}, see `workload_identity`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN = "https://kubernetes.default.svc.cluster.local"  # the API server's issuer and audience by default
_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """An issuer of tokens; `azure` is what Azure's webhook passes to pods, None without it."""

    url: str = OWN
    key: str = field(default_factory=secrets.token_urlsafe)
    azure: Mapping[str, str] | None = None

    def token(self, account: Mapping[str, Any], *, audience: str, seconds: int) -> str:
        """Return a token of a service account, valid for that many real seconds."""
        metadata, now = account["metadata"], int(time.time())
        namespace, name = metadata["namespace"], metadata["name"]
        claims = {
            "aud": [audience],
            "exp": now + seconds,
            "iat": now,
            "iss": self.url,
            "jti": secrets.token_hex(16),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": metadata["uid"]},
            },
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        signed = f"{_encoded({'alg': 'HS256', 'kid': 'cluster'})}.{_encoded(claims)}"
        return f"{signed}.{_signature(self.key, signed)}"


def verified(token: str, key: str) -> dict[str, Any] | None:
    """Return the claims of a token that was signed with this key and has not expired; None for any other."""
    parts = token.split(".")
    if len(parts) != _PARTS or not hmac.compare_digest(parts[2], _signature(key, ".".join(parts[:2]))):
        return None
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    return claims if claims["exp"] > time.time() else None


def _encoded(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _signature(key: str, text: str) -> str:
    digest = hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
