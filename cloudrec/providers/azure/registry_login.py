"""How images are pushed: a token of Entra ID is exchanged for one that the registry takes as a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy, UserAgentPolicy
from azure.core.rest import HttpRequest
from pydantic import SecretStr

from cloudrec import __version__
from cloudrec.errors import PreflightError
from cloudrec.provider import Registry
from cloudrec.providers.azure import access

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.layout import Layout

_SCOPE = "https://containerregistry.azure.net/.default"
_NOBODY = "00000000-0000-0000-0000-000000000000"  # who logs in with a token in the place of a password
_TIMEOUT_S = 30


def login(layout: Layout, azure: Azure, environment: Mapping[str, str]) -> Registry:
    """Log in to the cluster's registry, for three hours.

    Args:
        layout: the cluster's.
        azure: the subscription.
        environment: AZURE_CONTAINER_REGISTRY_URL in place of the registry's own address.

    Raises:
        PreflightError: the cluster has no registry.
    """
    registries = azure.client("containerregistry").registries
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
        username=_NOBODY,
        password=SecretStr(azure.read(_exchanged, azure, url, address)),
    )


def _exchanged(azure: Azure, url: str, service: str) -> str:
    """Return the registry's own token for a service, the address of which it was asked for."""
    form = {
        "grant_type": "access_token",
        "service": service,
        "tenant": azure.caller.tenant,
        "access_token": azure.credential.get_token(_SCOPE).token,
    }
    with PipelineClient(
        url,
        policies=[UserAgentPolicy(f"cloudrec/{__version__}"), RetryPolicy(retry_total=0)],
        connection_verify=azure.login.verify,
        connection_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
    ) as client:
        answer = client.send_request(HttpRequest("POST", f"{url}/oauth2/exchange", data=form))
        answer.raise_for_status()
        return str(answer.json()["refresh_token"])
