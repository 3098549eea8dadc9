"""A stand-in for Azure in its own process, and what a test does with it."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from contextlib import contextmanager
from http.client import HTTPSConnection
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError
from azure.identity import ClientSecretCredential
from azure.mgmt.core.polling.arm_polling import ARMPolling

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCATION = "eastus"
GROUP = "cloudrec-one"
_CLIENTS = {
    "authorization": "azure.mgmt.authorization:AuthorizationManagementClient",
    "compute": "azure.mgmt.compute:ComputeManagementClient",
    "containerregistry": "azure.mgmt.containerregistry:ContainerRegistryManagementClient",
    "containerservice": "azure.mgmt.containerservice:ContainerServiceClient",
    "msi": "azure.mgmt.msi:ManagedServiceIdentityClient",
    "network": "azure.mgmt.network:NetworkManagementClient",
    "resource": "azure.mgmt.resource.resources:ResourceManagementClient",
    "storage": "azure.mgmt.storage:StorageManagementClient",
    "storagecache": "azure.mgmt.storagecache:StorageCacheManagementClient",
    "subscription": "azure.mgmt.resource.subscriptions:SubscriptionClient",
}


class _Impatient(ARMPolling):
    def _extract_delay(self) -> float:
        return 0.05


class Azure:
    """One running stand-in; clients of it, its control, and short cuts."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.endpoint = env["AZURE_RESOURCE_MANAGER_ENDPOINT_URL"]
        self.subscription = env["AZURE_SUBSCRIPTION_ID"]
        self.tls = ssl.create_default_context(cafile=env["AZURE_CA_BUNDLE"])
        self._control = Control(self.endpoint, env[TOKEN_VARIABLE], authority=env["AZURE_CA_BUNDLE"])
        self._clients: dict[tuple[str, ...], Any] = {}
        self._connection = HTTPSConnection(urlsplit(self.endpoint).netloc, timeout=180, context=self.tls)

    def credential(self, **changes: str) -> ClientSecretCredential:
        wanted = {
            "tenant_id": self.env["AZURE_TENANT_ID"],
            "client_id": self.env["AZURE_CLIENT_ID"],
            "client_secret": self.env["AZURE_CLIENT_SECRET"],
            **changes,
        }
        return ClientSecretCredential(
            **wanted,
            authority=self.env["AZURE_AUTHORITY_HOST"],
            disable_instance_discovery=True,
            connection_verify=self.env["AZURE_CA_BUNDLE"],
            retry_total=0,
        )

    def client(self, service: str, *, credential: Any = None, subscription: str = "", **options: Any) -> Any:
        key = (service, subscription, *(options.keys()))
        if credential is not None or key not in self._clients:
            module, _, name = _CLIENTS[service].partition(":")
            made = getattr(import_module(module), name)
            words = [] if service == "subscription" else [subscription or self.subscription]
            client = made(
                credential or self._clients.setdefault(("",), self.credential()),
                *words,
                base_url=self.endpoint,
                credential_scopes=["https://management.azure.com/.default"],
                **{"connection_verify": self.env["AZURE_CA_BUNDLE"], "retry_total": 0, **options},
            )
            if credential is not None:
                return client
            self._clients[key] = client
        return self._clients[key]

    def token(self) -> str:
        token: str = (
            self._clients.setdefault(("",), self.credential())
            .get_token("https://management.azure.com/.default")
            .token
        )
        return token

    def raw(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        """A request that no SDK would make: status, headers in lower case, the document."""
        lines = {"Authorization": f"Bearer {self.token()}", "Content-Type": "application/json", **headers}
        data = json.dumps(body) if body is not None else None
        self._connection.request(method, path, data, lines)
        answer = self._connection.getresponse()
        text = answer.read()
        told = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, told, json.loads(text) if text else None

    def connection(self) -> HTTPSConnection:
        """The connection that `raw` uses."""
        return self._connection

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return self._control.ask(method, path, body)

    def control(self, **wishes: Any) -> dict[str, Any]:
        changed: dict[str, Any] = self.ask("POST", "", wishes)
        return changed

    def advance(self, seconds: float) -> None:
        self.control(advance_s=seconds)

    def calls(self, since: int = 0) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.ask("GET", f"/calls?since={since}")
        return lines

    def state(self) -> list[str]:
        existing: list[str] = self.ask("GET", "/state")["existing"]
        return existing

    def pending(self) -> list[str]:
        pending: list[str] = self.ask("GET", "/state")["pending"]
        return pending

    def group(self, name: str = GROUP, location: str = LOCATION, **tags: str) -> Any:
        body = {"location": location, "tags": tags}
        return self.client("resource").resource_groups.create_or_update(name, body)

    def id(self, type_: str, *names: str, group: str = GROUP) -> str:
        """The id of a resource of a type such as Microsoft.Network/virtualNetworks/subnets."""
        namespace, *types = type_.split("/")
        pairs = "/".join(f"{kind}/{name}" for kind, name in zip(types, names, strict=True))
        return f"/subscriptions/{self.subscription}/resourceGroups/{group}/providers/{namespace}/{pairs}"

    def begin(self, method: Any, *words: Any, **options: Any) -> Any:
        """The poller of an operation, which looks often: `Retry-After` is in virtual seconds."""
        return method(*words, polling=_Impatient(), **options)

    def done(self, method: Any, *words: Any, seconds: float = 1800, **options: Any) -> Any:
        """The result of an operation after virtual time has passed."""
        poller = self.begin(method, *words, **options)
        self.advance(seconds)
        return poller.result(30)

    def close(self) -> None:
        self._connection.close()
        for client in self._clients.values():
            client.close()


@contextmanager
def stand_in() -> Iterator[Azure]:
    words = [sys.executable, "-m", "cloudrec_sandbox", "azure", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        azure = None
        try:
            assert process.stdout is not None
            azure = Azure(json.loads(process.stdout.readline())["env"])
            yield azure
        finally:
            if azure is not None:
                azure.close()
            process.terminate()
            process.wait(300)


@contextmanager
def refused(code: str, *words: str, status: int = 0) -> Iterator[pytest.ExceptionInfo[HttpResponseError]]:
    """The call inside is refused with `code`, in a message that has `words`."""
    with pytest.raises(HttpResponseError) as caught:
        yield caught
    error = caught.value
    assert error.error is not None, error
    assert error.error.code == code, error
    for word in words:
        assert word in (error.error.message or ""), error
    if status:
        assert error.status_code == status, error


def headers_of(error: HttpResponseError) -> Mapping[str, str]:
    """Return the headers of the answer that an error was made of."""
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    return headers
