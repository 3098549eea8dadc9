"""How one logs in to Azure, where its doors are, and who one then is."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from azure.core import AzureClouds
from azure.mgmt.core.tools import get_arm_endpoints

if TYPE_CHECKING:
    from collections.abc import Mapping

_AUTHORITY = "https://login.microsoftonline.com"
# Which Azure it is, told by where one logs in.
_CLOUDS: Mapping[str, AzureClouds] = {
    "login.chinacloudapi.cn": AzureClouds.AZURE_CHINA_CLOUD,
    "login.partner.microsoftonline.cn": AzureClouds.AZURE_CHINA_CLOUD,
    "login.microsoftonline.us": AzureClouds.AZURE_US_GOVERNMENT,
}
_SECRET = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
_PARTS = 3  # of a token: a header, what it says, a signature


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls, as the access token tells.

    Attributes:
        object_id: of the principal in its tenant, which roles are assigned to.
        kind: "User" or "ServicePrincipal", as role assignments call it.
        name: the user's name, or the application's id.
        tenant: id of the tenant that gave the token.
        expires: when the token ends, in seconds since the epoch.
    """

    object_id: str
    kind: str
    name: str
    tenant: str
    expires: float


class Login:
    """What the environment says of Azure's doors and of who enters.

    Args:
        environment: see `client.Azure`.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    @cached_property
    def credential(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """The credential: a client's secret where the environment has one, else wherever one is logged in."""
        identity = import_module("azure.identity")  # slow to import
        given = self._environment.get
        shared = {"authority": self._authority, "connection_verify": self.verify}
        if all(given(name) for name in _SECRET):
            tenant, client, secret = (given(name) for name in _SECRET)
            # Entra is asked whether an authority is one, but for its own: a stand-in is none.
            is_own = self._authority.startswith(_AUTHORITY)
            return identity.ClientSecretCredential(
                tenant, client, secret, disable_instance_discovery=not is_own, **shared
            )
        return identity.DefaultAzureCredential(
            exclude_interactive_browser_credential=True, exclude_broker_credential=True, **shared
        )

    @property
    def verify(self) -> str | bool:
        """What the servers' certificates are checked with: a file of authorities, or the system's."""
        return self._environment.get("AZURE_CA_BUNDLE") or True

    @cached_property
    def endpoint(self) -> str:
        """Where the resource manager is."""
        own = self._environment.get("AZURE_RESOURCE_MANAGER_ENDPOINT_URL")
        return str(own or self._arm["resource_manager"]).rstrip("/")

    @property
    def scopes(self) -> list[str]:
        """What a token must be good for, so that the resource manager takes it."""
        scopes: list[str] = self._arm["credential_scopes"]
        return scopes

    @property
    def caller(self) -> Caller:
        """Who calls.

        Raises:
            azure.core.exceptions.ClientAuthenticationError: there are no credentials, or none are accepted.
        """
        claims = _claims(self.credential.get_token(*self.scopes).token)
        user = claims.get("upn") or claims.get("unique_name")
        return Caller(
            object_id=str(claims.get("oid", "")),
            kind="User" if user and claims.get("idtyp") != "app" else "ServicePrincipal",
            name=str(user or claims.get("appid", "")),
            tenant=str(claims.get("tid", "")),
            expires=float(claims.get("exp", 0)),
        )

    @property
    def _authority(self) -> str:
        host = self._environment.get("AZURE_AUTHORITY_HOST") or _AUTHORITY
        return host if "://" in host else f"https://{host}"

    @property
    def _arm(self) -> Mapping[str, Any]:
        host = self._authority.partition("://")[2].partition("/")[0]
        arm: Mapping[str, Any] = get_arm_endpoints(_CLOUDS.get(host, AzureClouds.AZURE_PUBLIC_CLOUD))
        return arm


def _claims(token: str) -> Mapping[str, Any]:
    """Read what an access token says; whether it is genuine is its addressee's to check."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return {}
    claims: Mapping[str, Any] = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    return claims
