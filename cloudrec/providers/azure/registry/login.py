"""Login to the image registry: Entra ID's token is exchanged for one that serves as a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy, UserAgentPolicy
from azure.core.rest import HttpRequest, HttpResponse
from pydantic import SecretStr

from cloudrec.errors import PreflightError
from cloudrec.providers.azure import access
from cloudrec.providers.azure.errors import object_of
from cloudrec.providers.base.protocol import Registry
from cloudrec.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.layout import AzureLayout

_Client = PipelineClient[HttpRequest, HttpResponse]
_SCOPE = "https://containerregistry.azure.net/.default"
_NULL_USER = "00000000-0000-0000-0000-000000000000"  # the user name with which a token is the password
_TIMEOUT_S = 30


def login(layout: AzureLayout, azure: Azure, environment: Mapping[str, str]) -> Registry:
    """Return the cluster's registry with a login that lasts three hours.

    Args:
        layout: the cluster's.
        azure: the subscription.
        environment: may have AZURE_CONTAINER_REGISTRY_URL, which replaces the registry's own address.

    Raises:
        PreflightError: the cluster has no registry.
    """
    registries = azure.containerregistry.registries
    row = azure.get(registries.get, layout.group, layout.registry)
    if row is None:
        raise PreflightError(
            f"there is no registry {layout.registry} in resource group {layout.group}",
            remedy=f"cloudrec up azure --cluster {layout.title}",
        )
    address = str(row.login_server)
    url = environment.get("AZURE_CONTAINER_REGISTRY_URL") or f"https://{address}"
    return Registry(
        address=address,
        repository=f"{address}/{access.IMAGE}",
        username=_NULL_USER,
        password=SecretStr(azure.read(_exchanged, azure, url, address)),
    )


def _exchanged(azure: Azure, url: str, service: str) -> str:
    """Return the registry's refresh token.

    Args:
        azure: the subscription.
        url: of the registry's API.
        service: the registry's address.
    """
    form = {
        "grant_type": "access_token",
        "service": service,
        "tenant": azure.caller.tenant,
        "access_token": azure.read(azure.credential.get_token, _SCOPE).token,
    }
    with _Client(
        url,
        policies=[UserAgentPolicy(f"cloudrec/{__version__}"), RetryPolicy(retry_total=0)],
        connection_verify=azure.login.verify,
        connection_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
    ) as client:
        answer = client.send_request(HttpRequest("POST", f"{url}/oauth2/exchange", data=form))
        answer.raise_for_status()
        return str(object_of(answer).get("refresh_token") or "")
