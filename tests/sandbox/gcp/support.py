"""A stand-in for Google Cloud in its own process, and what a test does with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.auth.transport.requests import AuthorizedSession, Request
from google.cloud import compute_v1
from google.cloud.container_v1 import ClusterManagerClient
from google.cloud.lustre_v1 import LustreClient
from google.oauth2 import service_account
from google.oauth2.credentials import Credentials

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT, NUMBER = "sandbox-project", "123456789012"
REGION, ZONE = "us-central1", "us-central1-a"
# How Google calls what changes nothing.
READS = re.compile(r"(Get|List|Query|(.*\.)?(get|list|aggregatedList|getIamPolicy|batchGet|wait)$)")
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class Gcp:
    """One running stand-in; the SDK's clients of it, its control, and short cuts."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.endpoint = env["GOOGLE_CLOUD_ENDPOINT_URL"]
        self._control = Control(self.endpoint, env[TOKEN_VARIABLE])
        self._compute: dict[str, Any] = {}

    @cached_property
    def credentials(self) -> Any:
        """A token of the service account whose key the stand-in made.

        The account's own credentials would look for where they may be used, at an address of Google's.
        """
        file = self.env["GOOGLE_APPLICATION_CREDENTIALS"]
        account = service_account.Credentials.from_service_account_file(file, scopes=[SCOPE])
        account.refresh(Request())
        return Credentials(account.token)

    @cached_property
    def channel(self) -> Any:
        """To the gRPC port."""
        return grpc.insecure_channel(self.env["GOOGLE_CLOUD_GRPC_ENDPOINT"])

    @cached_property
    def gke(self) -> Any:
        """Kubernetes Engine's client."""
        return ClusterManagerClient(
            transport=ClusterManagerClient.get_transport_class("grpc")(channel=self.channel)
        )

    @cached_property
    def lustre(self) -> Any:
        """Managed Lustre's client."""
        return LustreClient(transport=LustreClient.get_transport_class("grpc")(channel=self.channel))

    @cached_property
    def session(self) -> Any:
        """Plain REST with the account's tokens."""
        return AuthorizedSession(self.credentials)

    def compute(self, collection: str) -> Any:
        """The client of a collection of Compute's: Networks, RegionOperations."""
        if collection not in self._compute:
            self._compute[collection] = getattr(compute_v1, f"{collection}Client")(
                credentials=self.credentials, client_options={"api_endpoint": self.endpoint}
            )
        return self._compute[collection]

    def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Make a call of plain REST; the status and the document."""
        answer = self.session.request(method, f"{self.endpoint}{path}", json=body, timeout=180)
        return answer.status_code, answer.json() if answer.content else {}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return self._control.ask(method, path, body)

    def control(self, **wishes: Any) -> dict[str, Any]:
        changed: dict[str, Any] = self.ask("POST", "", wishes)
        return changed

    def advance(self, seconds: float) -> None:
        self.control(advance_s=seconds)

    def calls(self, since: int = 0) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.ask("GET", f"/calls?since={since}")
        return [line for line in lines if line["service"] != "oauth2"]

    def changing(self, since: int = 0) -> list[dict[str, Any]]:
        """The calls that change something."""
        return [call for call in self.calls(since) if not READS.match(call["action"])]

    def state(self, front: str = "") -> list[str]:
        existing: list[str] = self.ask("GET", "/state")["existing"]
        return [entry for entry in existing if entry.startswith(front)]

    def pending(self, front: str = "") -> list[str]:
        pending: list[str] = self.ask("GET", "/state")["pending"]
        return [entry for entry in pending if entry.startswith(front)]

    def close(self) -> None:
        """End the clients' connections."""
        if "channel" in vars(self):
            self.channel.close()
        if "session" in vars(self):
            self.session.close()
        for client in self._compute.values():
            client.transport.close()


@contextmanager
def stand_in() -> Iterator[Gcp]:
    words = [sys.executable, "-m", "cloudrec_sandbox", "gcp", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            gcp = Gcp(json.loads(process.stdout.readline())["env"])
            try:
                yield gcp
            finally:
                gcp.close()
        finally:
            process.terminate()
            process.wait(300)


@contextmanager
def refused(code: str, *words: str, reason: str = "") -> Iterator[None]:
    """The block is refused with a canonical code (gRPC) or a status (REST), and with these words."""
    with pytest.raises(GoogleAPICallError) as caught:
        yield
    error = caught.value
    assert code in ((error.grpc_status_code and error.grpc_status_code.name) or "", str(int(error.code or 0)))
    for word in words:
        assert word in error.message, error.message
    if reason:
        assert error.reason == reason, error
