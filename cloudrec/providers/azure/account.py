"""Azure's credentials, the endpoints of its clouds, and the caller's identity."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from azure.core import AzureClouds
from azure.mgmt.core.tools import get_arm_endpoints

from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from azure.core.credentials import TokenCredential

_AUTHORITY = "https://login.microsoftonline.com"
# Login host -> cloud; every other host is taken for the public cloud.
_CLOUDS: Mapping[str, AzureClouds] = {
    "login.chinacloudapi.cn": AzureClouds.AZURE_CHINA_CLOUD,
    "login.partner.microsoftonline.cn": AzureClouds.AZURE_CHINA_CLOUD,
    "login.microsoftonline.us": AzureClouds.AZURE_US_GOVERNMENT,
}
_SECRET = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
_PARTS = 3  # of a token: header, claims, signature


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller, from the access token.

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
    """The credentials and the endpoints that the environment selects.

    Args:
        environment: as `client.Azure` has it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    @cached_property
    def credential(self) -> TokenCredential:
        """The credential: a client secret if the environment has one, else the login of Azure's tools."""
        from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415 - slow to import

        given = self._environment
        shared = {"authority": self._authority, "connection_verify": self.verify}
        if all(given.get(name) for name in _SECRET):
            tenant, client, secret = (given[name] for name in _SECRET)
            # For another authority the SDK asks the public one whether it is valid; a stand-in is unknown
            # there.
            is_own = self._authority.startswith(_AUTHORITY)
            return ClientSecretCredential(
                tenant, client, secret, disable_instance_discovery=not is_own, **shared
            )
        return DefaultAzureCredential(
            exclude_interactive_browser_credential=True, exclude_broker_credential=True, **shared
        )

    @property
    def verify(self) -> str | bool:
        """The file of authorities that verifies the servers' certificates; True for the system's."""
        return self._environment.get("AZURE_CA_BUNDLE") or True

    @property
    def own_endpoint(self) -> str:
        """URL of a resource manager that replaces the cloud's; empty if none is set."""
        return self._environment.get("AZURE_RESOURCE_MANAGER_ENDPOINT_URL") or ""

    @cached_property
    def endpoint(self) -> str:
        """URL of the resource manager, without a slash at its end."""
        return str(self.own_endpoint or self._arm["resource_manager"]).rstrip("/")

    @property
    def cloud_endpoint(self) -> str:
        """URL of the cloud's resource manager for callers in the cloud, without a slash at its end."""
        return str(self._arm["resource_manager"]).rstrip("/")

    @property
    def scopes(self) -> list[str]:
        """The scopes of a token for the resource manager."""
        scopes: list[str] = self._arm["credential_scopes"]
        return scopes

    @property
    def caller(self) -> Caller:
        """The principal that the credentials belong to.

        Raises:
            azure.core.exceptions.ClientAuthenticationError: there are no credentials, or Entra ID refuses
            them.
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
    """Return the claims of an access token; empty if it has none. The signature is not verified."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return {}
    try:
        return safe_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:  # not a JSON Web Token
        return {}
