"""Who may use a container: a token, the account's network rules, and the role assignments.

Sources: "Authorize with Microsoft Entra ID" (REST reference); "Configure Azure Storage firewalls and virtual
networks" for the rules: they judge the sender's public address, and a subnet's rule counts for senders in
that subnet alone. A sender in the account's region has a private address for them, so that no rule for a
public address lets it in. Roles always count here, whatever `enforce_iam` of /_control says: the owner of a
subscription has no permission on data.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.blob.errors import BlobError
from cloudrec_sandbox.azure.identity import entra, tokens
from cloudrec_sandbox.azure.services.authorization import access
from cloudrec_sandbox.azure.services.network import service_endpoints
from cloudrec_sandbox.core import linked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.azure.services.authorization.abac import Attempt
    from cloudrec_sandbox.core.world import World

_POOLS = "Microsoft.ContainerService/managedClusters/agentPools"


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Whose token a request has.

    Attributes:
        principal: the object id.
        cluster: id of the AKS cluster whose service account got the token; empty outside of clusters.
    """

    principal: str
    cluster: str


def sender_of(account: Resource, headers: Mapping[str, str]) -> Sender:
    """Return the sender by the Authorization header; BlobError if the account does not accept it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if not scheme:
        authority = f"https://login.microsoftonline.com/{entra.TENANT}/oauth2/authorize"
        challenge = f"Bearer authorization_uri={authority} resource_id={tokens.STORAGE}"
        raise BlobError(
            "NoAuthenticationInformation",
            "Server failed to authenticate the request. Please refer to the information in the "
            "www-authenticate header.",
            status=HTTPStatus.UNAUTHORIZED,
            headers=[("WWW-Authenticate", challenge)],
        )
    if scheme.lower() == "sharedkey":
        raise _key_refused(account)
    claims = tokens.valid(token) if scheme.lower() == "bearer" else None
    audiences = (tokens.STORAGE, str(account.properties["primaryEndpoints"]["blob"]).rstrip("/"))
    if claims is None or claims["aud"].rstrip("/") not in audiences or claims["tid"] != entra.TENANT:
        raise BlobError(
            "InvalidAuthenticationInfo",
            "Server failed to authenticate the request. Please refer to the information in the "
            "www-authenticate header.",
            status=HTTPStatus.UNAUTHORIZED,
        )
    return Sender(principal=claims["oid"], cluster=claims.get(tokens.CLUSTER, ""))


def _key_refused(account: Resource) -> BlobError:
    if account.properties.get("allowSharedKeyAccess") is False:
        message = "Key based authentication is not permitted on this storage account."
        return BlobError("KeyBasedAuthenticationNotPermitted", message, status=HTTPStatus.FORBIDDEN)
    message = "Server failed to authenticate the request. This stand-in's accounts have no keys."
    return BlobError("AuthenticationFailed", message, status=HTTPStatus.FORBIDDEN)


def check_network(world: World, account: Resource, sender: Sender) -> None:
    """Refuse a sender that the account's network rules do not let in."""
    if not _is_let_in(world, account, sender):
        raise BlobError(
            "AuthorizationFailure",
            "This request is not authorized to perform this operation.",
            status=HTTPStatus.FORBIDDEN,
        )


def _is_let_in(world: World, account: Resource, sender: Sender) -> bool:
    properties = account.properties
    if properties.get("publicNetworkAccess") == "Disabled":
        return False  # private endpoints alone would be left, and this stand-in has none
    rules = properties["networkAcls"]
    if rules.get("defaultAction") != "Deny":
        return True
    if sender.cluster:
        listed = {rule["id"].lower() for rule in rules["virtualNetworkRules"]}
        near = _subnets(world, sender.cluster)
        return any(id_ in listed and _is_seen(world, id_, account.location) for id_ in near)
    address = IPv4Address(world.state(linked.Caller).address)
    return any(address in IPv4Network(rule["value"]) for rule in rules["ipRules"])


def _subnets(world: World, cluster: str) -> set[str]:
    """Return the ids of the subnets that a cluster's nodes are in, in lower case."""
    pools = store(world).of_type(_POOLS, cluster)
    return {str(pool.properties.get("vnetSubnetID") or "").lower() for pool in pools}


def _is_seen(world: World, subnet: str, region: str) -> bool:
    """Whether a subnet exists and storage in a region sees its senders by their private addresses."""
    found = store(world).find(subnet)
    return found is not None and service_endpoints.reaches_storage(found, region)


def check_role(
    world: World, sender: Sender, attempts: Sequence[Attempt], scope: str, *, is_on_data: bool
) -> None:
    """Refuse a request if the sender's roles allow none of the attempts that it can be, at its scope."""
    allowed = [
        each for each in attempts if access.permits(world, sender.principal, each, scope, data=is_on_data)
    ]
    decided = (allowed or attempts)[0]
    access.note(world, sender.principal, decided.action, is_allowed=bool(allowed))
    if not allowed:
        raise BlobError(
            "AuthorizationPermissionMismatch",
            "This request is not authorized to perform this operation using this permission.",
            status=HTTPStatus.FORBIDDEN,
        )
