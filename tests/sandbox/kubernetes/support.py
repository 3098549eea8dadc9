"""A stand-in for Kubernetes in its own process, and what a test does with it."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest
from kubernetes import client, config

from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

APPLY = "application/apply-patch+yaml"
STRANGER = "-"  # who has no token
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Kubernetes:
    """One running stand-in; clients of it, its control, and short cuts."""

    def __init__(self, announcement: dict[str, Any]) -> None:
        self.announcement = announcement
        self.endpoint: str = announcement["endpoints"]["kubernetes"]
        self.tls = ssl.create_default_context(cafile=announcement["certificate_authority"])
        self.api = config.new_client_from_config(announcement["env"]["KUBECONFIG"])
        self.core = client.CoreV1Api(self.api)
        self.batch = client.BatchV1Api(self.api)
        self._connection = HTTPSConnection(urlsplit(self.endpoint).netloc, timeout=180, context=self.tls)

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        bearer: str = "",
        content_type: str = "application/json",
        **query: str,
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of an answer, without a client's own ideas of what may be sent."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Content-Type": content_type, "User-Agent": "tests/1"}
        if path.startswith("/_control"):
            headers |= Control.of(self.announcement).headers
        elif bearer != STRANGER:
            headers["Authorization"] = f"Bearer {bearer or self.announcement['token']}"
        self._connection.request(method, target, body=data, headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, told, json.loads(text) if told["content-type"].endswith("json") else text

    def done(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """The body of an answer that must be good."""
        status, _, told = self.raw(method, path, body, **how)
        assert status < 300, told
        return told

    def refused(self, method: str, path: str, body: Any = None, **how: Any) -> dict[str, Any]:
        """The Status of a refusal."""
        status, _, told = self.raw(method, path, body, **how)
        assert status >= 400, told
        if isinstance(told, bytes):  # of a path without a handler, not a Status
            return {"code": status, "message": told.decode()}
        assert told["code"] == status
        refusal: dict[str, Any] = told
        return refusal

    def apply(self, path: str, obj: dict[str, Any], manager: str = "one", **query: str) -> Any:
        return self.done("PATCH", path, obj, content_type=APPLY, fieldManager=manager, **query)

    def control(self, **wishes: Any) -> dict[str, Any]:
        told: dict[str, Any] = self.done("POST", "/_control", wishes)
        return told

    def as_user(self, token: str) -> client.CoreV1Api:
        """A client of another user."""
        settings = client.Configuration(host=self.endpoint)
        settings.ssl_ca_cert = self.announcement["certificate_authority"]
        settings.api_key = {"authorization": f"Bearer {token}"}
        settings.api_key["BearerToken"] = f"Bearer {token}"
        return client.CoreV1Api(client.ApiClient(settings))

    def close(self) -> None:
        self._connection.close()
        self.api.close()


@contextmanager
def stand_in() -> Iterator[Kubernetes]:
    command = [sys.executable, "-m", "cloudrec_sandbox", "kubernetes", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            kubernetes = Kubernetes(json.loads(process.stdout.readline()))
            yield kubernetes
            kubernetes.close()
        finally:
            process.terminate()
            process.wait(300)


def until(check: Callable[[], Any], limit_s: float = 60) -> Any:
    """The first result of `check` that is not empty."""
    end = time.monotonic() + limit_s
    while not (found := check()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return found


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> client.ApiException:
    """The refusal of a call of the client."""
    with pytest.raises(client.ApiException) as caught:
        call(*arguments, **options)
    return caught.value


def status_of(error: client.ApiException) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(error.body)
    return told


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def job(name: str, **spec: Any) -> dict[str, Any]:
    """A job that no one starts: suspended."""
    container = {"name": "trainer", "image": "example.com/trainer:1", "command": ["true"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that no one places: its scheduler does not exist."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "example.com/main:1"}],
            **spec,
        },
    }
