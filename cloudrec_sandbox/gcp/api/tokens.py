"""The caller of a request: a service account's key made at start, Google's token endpoint, bearer tokens.

Tokens expire by the real clock, since clients sign with it, and they outlive a reset.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt

from cloudrec_sandbox.core.http import Reply, json_reply
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.projects import HOME
from cloudrec_sandbox.gcp.api.registry import rest

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec_sandbox.gcp.api.call import Call

CALLER = f"deployer@{HOME}.iam.gserviceaccount.com"
_LIFE_S = 3600
_BITS = 2048
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_PREFIX = "ya29.sandbox."


_PODS = 10001  # the user of cloudrec's pods


class _GrantError(Exception):
    """The token endpoint's refusal: OAuth's code and its description."""


@dataclass(frozen=True)
class Key:
    """A service account's key file."""

    document: dict[str, str]

    def write(self, folder: Path) -> str:
        """Write it into a folder; return the file's name."""
        path = folder / "service-account.json"
        path.write_text(json.dumps(self.document))
        path.chmod(0o600)
        if os.getuid() == 0:  # pods are then processes of another user, which must read it
            os.chown(path, _PODS, -1)
            folder.chmod(0o711)
        return str(path)


class Tokens:
    """Issues tokens to a client that has the key, and verifies them."""

    def __init__(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        self._private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._verifier = crypt.RSAVerifier.from_string(public)
        self._id = secrets.token_hex(20)
        self._secret = secrets.token_bytes(32)

    def key(self, address: str) -> Key:
        """Return the key file, for a token endpoint at this address."""
        return Key(
            {
                "type": "service_account",
                "project_id": HOME,
                "private_key_id": self._id,
                "private_key": self._private,
                "client_email": CALLER,
                "client_id": "100000000000000000001",
                "auth_uri": f"{address}/o/oauth2/auth",
                "token_uri": f"{address}/token",
                "universe_domain": "googleapis.com",
            }
        )

    def grant(self, body: bytes) -> Reply:
        """Return the token endpoint's answer to a form."""
        form = {name: values[-1] for name, values in parse_qs(body.decode()).items()}
        try:
            email = self._grantee(form)
        except _GrantError as error:
            code, text = error.args
            document = {"error": code, "error_description": text}
            return json_reply(document, HTTPStatus.BAD_REQUEST)
        return json_reply(
            {"access_token": self.issue(email), "expires_in": _LIFE_S - 1, "token_type": "Bearer"}
        )

    def _grantee(self, form: dict[str, str]) -> str:
        if form.get("grant_type") != _GRANT:
            raise _GrantError("unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type', '')}")
        claims = self._claims(form.get("assertion", ""))
        if not str(claims.get("aud", "")).endswith("/token"):
            raise _GrantError("invalid_grant", "Invalid JWT: Failed audience check.")
        if not claims.get("scope"):
            raise _GrantError("invalid_scope", "Empty or missing scope not allowed.")
        return str(claims["iss"])

    def _claims(self, assertion: str) -> dict[str, Any]:
        """Return the claims of a token that was signed with the key."""
        try:
            _, claims, signed, signature = jwt._unverified_decode(assertion)  # noqa: SLF001 - the public one wants X.509
        except ValueError as error:
            raise _GrantError("invalid_grant", "Invalid JWT: could not be decoded.") from error
        found: dict[str, Any] = claims
        if found.get("iss") != CALLER:
            raise _GrantError("invalid_grant", "Invalid grant: account not found")
        if not self._verifier.verify(signed, signature):
            raise _GrantError("invalid_grant", "Invalid JWT Signature.")
        # Five minutes of difference between the clocks are allowed.
        if not found.get("iat", 0) - 300 <= time.time() <= found.get("exp", 0):
            text = (
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
            )
            raise _GrantError("invalid_grant", text)
        return found

    def issue(self, email: str, life_s: float = _LIFE_S) -> str:
        """Return a token with the account and the time of its expiry."""
        text = json.dumps([email, time.time() + life_s]).encode()
        return f"{_PREFIX}{base64.urlsafe_b64encode(text).decode()}.{self._sign(text)}"

    def caller(self, authorization: str) -> str:
        """Return the account of a token; GcpError for an unknown or an expired one."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() == "bearer" and token.startswith(_PREFIX):
            coded, _, signature = token.removeprefix(_PREFIX).partition(".")
            text = base64.urlsafe_b64decode(coded)
            if hmac.compare_digest(signature, self._sign(text)):
                email, end = json.loads(text)
                if end > time.time():
                    return str(email)
        elif kind.lower() == "bearer":  # the SDKs also sign tokens themselves for Google's APIs
            try:
                return str(self._claims(token)["iss"])
            except _GrantError:
                pass
        raise GcpError(
            "UNAUTHENTICATED",
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or"
            " other valid authentication credential. See"
            " https://developers.google.com/identity/sign-in/web/devconsole-project.",
            reason="ACCESS_TOKEN_EXPIRED" if token.startswith(_PREFIX) else "ACCESS_TOKEN_TYPE_UNSUPPORTED",
            classic="authError",
        )

    def _sign(self, text: bytes) -> str:
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()


@rest("oauth2", "token", "POST", "/token", body=bytes, open=True)
def grant(call: Call) -> Reply:
    """Answer as Google's token endpoint."""
    if call.tokens is None:
        raise missing()
    return call.tokens.grant(call.body)


def missing() -> GcpError:
    """Return the refusal of a request without a token."""
    return GcpError(
        "UNAUTHENTICATED",
        "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie"
        " or other valid authentication credential. See"
        " https://developers.google.com/identity/sign-in/web/devconsole-project.",
        reason="CREDENTIALS_MISSING",
        classic="required",
    )
