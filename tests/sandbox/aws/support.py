"""A stand-in for AWS in its own process, and what a test does with it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from cloudrec_sandbox.core.admission import TOKEN_VARIABLE
from cloudrec_sandbox.core.client import Control

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = Config(retries={"mode": "standard", "max_attempts": 1}, read_timeout=20, connect_timeout=5)
ZONES = ("us-east-1a", "us-east-1b")


class Aws:
    """One running stand-in; boto3 clients of it, its control, and short cuts."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self.endpoint = env["AWS_ENDPOINT_URL"]
        self._control = Control(self.endpoint, env[TOKEN_VARIABLE])
        self._session: Any = boto3.Session(
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
            region_name=env["AWS_REGION"],
        )
        self._clients: dict[str, Any] = {}

    def client(self, service: str, config: Config | None = None) -> Any:
        if config is not None:
            return self._session.client(service, endpoint_url=self.endpoint, config=config)
        if service not in self._clients:
            self._clients[service] = self._session.client(service, endpoint_url=self.endpoint, config=CONFIG)
        return self._clients[service]

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


@contextmanager
def stand_in() -> Iterator[Aws]:
    words = [sys.executable, "-m", "cloudrec_sandbox", "aws", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Aws(json.loads(process.stdout.readline())["env"])
        finally:
            process.terminate()
            process.wait(300)


@contextmanager
def refused(code: str, *words: str) -> Iterator[None]:
    """The call inside is refused with `code`, in a message that has `words`."""
    with pytest.raises(ClientError) as caught:
        yield
    error = caught.value.response["Error"]
    assert error["Code"] == code, error
    for word in words:
        assert word in error["Message"], error


def trust(service: str, *actions: str) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": list(actions or ("sts:AssumeRole",)),
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
