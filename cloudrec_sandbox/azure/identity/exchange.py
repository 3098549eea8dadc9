"""Workload identity: a token of a cluster's service account is exchanged for one of an identity.

Entra ID compares the token's issuer, subject and audience with the identity's federated credentials, and
verifies its signature by the issuer's keys ("Workload identity federation", Entra's documentation). The
issuers here are those of AKS clusters.

Duration: federation-effect, until a federated credential counts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.kubernetes.storage.issuer import verified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

durations({"federation-effect": 15})

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"
_CREDENTIAL = f"{_IDENTITY}/federatedIdentityCredentials"
_CLUSTER = "Microsoft.ContainerService/managedClusters"
_SECRET = secrets.token_bytes(32)


class ExchangeError(Exception):
    """Entra ID refuses a token; `number` is the one of its AADSTS code."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Who gets a token: an identity's principal, for a workload of a cluster."""

    principal: str
    cluster: str


def key_of(issuer: str) -> str:
    """Return the key with which an issuer signs its tokens."""
    return hmac.new(_SECRET, issuer.encode(), hashlib.sha256).hexdigest()


def workload(world: World, form: Mapping[str, str]) -> Workload:
    """Return whose token a request gets; ExchangeError if no federated credential matches."""
    client = form.get("client_id", "")
    identities = store(world).of_type(_IDENTITY)
    identity = next((each for each in identities if each.properties["clientId"] == client.lower()), None)
    if identity is None:
        raise ExchangeError(700016, f"Application with identifier '{client}' was not found in the directory.")
    claims = _claims(form.get("client_assertion", ""))
    cluster = _issuing(world, str(claims.get("iss")))
    _match(world, identity, claims)
    if cluster is None or verified(form["client_assertion"], key_of(str(claims["iss"]))) is None:
        raise ExchangeError(700027, "Client assertion failed signature validation, or it has expired.")
    return Workload(principal=identity.properties["principalId"], cluster=cluster.id)


def _issuing(world: World, issuer: str) -> Resource | None:
    """Return the cluster with this issuer."""
    for cluster in store(world).of_type(_CLUSTER):
        if (cluster.properties.get("oidcIssuerProfile") or {}).get("issuerURL") == issuer:
            return cluster
    return None


def _match(world: World, identity: Resource, claims: Mapping[str, Any]) -> None:
    """Refuse claims that no federated credential of the identity has, by the first that differs."""
    since = world.now() - world.duration("federation-effect")
    rows = [
        each.properties for each in store(world).of_type(_CREDENTIAL, identity.id) if each.changed_at <= since
    ]
    wanted = [("issuer", 700211, claims.get("iss")), ("subject", 700213, claims.get("sub"))]
    for member, number, value in wanted:
        rows = [row for row in rows if row[member] == value]
        if not rows:
            raise ExchangeError(
                number,
                f"No matching federated identity record found for presented assertion {member} '{value}'.",
            )
    audiences = claims.get("aud") or []
    if not any(row["audiences"][0] in audiences for row in rows):
        raise ExchangeError(
            700212,
            f"No matching federated identity record found for presented assertion audience '{audiences}'.",
        )


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims: dict[str, Any] = json.loads(text)
    except (IndexError, ValueError, binascii.Error) as error:
        raise ExchangeError(50027, "JWT token is invalid or malformed.") from error
    return claims
