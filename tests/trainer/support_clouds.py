"""Each cloud's object store on loopback, behind a proxy that can fail its requests."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from cloudrec_contract.objectstore.base import StoreOptions
from cloudrec_contract.objectstore.retries import Patience
from tests.standins.faults import Fault, FaultyProxy
from tests.standins.gcs import GcsStandIn
from tests.standins.servers import AZURITE_ACCOUNT, AZURITE_KEY, azurite, moto_server
from trainer.checkpoint.store.base import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack
    from pathlib import Path

CLOUDS = ("s3", "azure", "gcs")
_BUCKET = "a-bucket"


@dataclass(frozen=True)
class CloudPlace:
    """A bucket, the variables that lead to it, and the proxy before it."""

    cloud: str
    scheme: str
    variables: Mapping[str, str]
    proxy: FaultyProxy

    def new_uri(self) -> str:
        """Return the URI of a new folder."""
        return f"{self.scheme}://{_BUCKET}/{uuid.uuid4().hex}/checkpoints"

    def refusal(self, status: int, **more: str | int) -> Fault:
        """Return a fault with this cloud's error body."""
        words = _WORDS[self.cloud]
        code = words.codes.get(status, str(status))
        headers = {name: value.replace("CODE", code) for name, value in words.headers.items()}
        body = words.body.replace("CODE", code).encode()
        return Fault("answer", status=status, body=body, headers=headers, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Words:
    """The format of a cloud's errors."""

    body: str
    headers: Mapping[str, str]
    codes: Mapping[int, str]


_XML = "<?xml version='1.0'?><Error><Code>CODE</Code><Message>on request</Message></Error>"
_WORDS = {
    "s3": _Words(
        _XML,
        {"Content-Type": "application/xml"},
        {403: "AccessDenied", 409: "ConditionalRequestConflict", 500: "InternalError", 503: "SlowDown"},
    ),
    "azure": _Words(
        _XML,
        {"Content-Type": "application/xml", "x-ms-error-code": "CODE"},
        {403: "AuthorizationPermissionMismatch", 500: "InternalError", 503: "ServerBusy"},
    ),
    "gcs": _Words(
        '{"error": {"code": CODE, "message": "on request"}}', {"Content-Type": "application/json"}, {}
    ),
}


class Clouds:
    """Starts stand-ins, each once; they end with the stack."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._started: dict[str, CloudPlace] = {}

    def start(self, cloud: str) -> CloudPlace:
        """One of CLOUDS."""
        if cloud not in self._started:
            starting = {"s3": _s3, "azure": _azure, "gcs": _gcs}[cloud]
            self._started[cloud] = starting(self._stack, self._folder)
        return self._started[cloud]


def _s3(stack: ExitStack, folder: Path) -> CloudPlace:
    port = stack.enter_context(moto_server(folder / "moto.log"))
    urlopen(Request(f"http://127.0.0.1:{port}/{_BUCKET}", method="PUT")).close()
    proxy = stack.enter_context(FaultyProxy(port))
    variables = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return CloudPlace("s3", "s3", variables, proxy)


def _azure(stack: ExitStack, folder: Path) -> CloudPlace:
    from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - needed here alone

    port = stack.enter_context(azurite(folder / "azurite.log"))
    proxy = stack.enter_context(FaultyProxy(port))
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={AZURITE_ACCOUNT};AccountKey={AZURITE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{proxy.port}/{AZURITE_ACCOUNT};"
    )
    with BlobServiceClient.from_connection_string(connection) as client:
        client.create_container(_BUCKET).close()
    return CloudPlace("azure", "abfs", {"AZURE_STORAGE_CONNECTION_STRING": connection}, proxy)


def _gcs(stack: ExitStack, folder: Path) -> CloudPlace:
    del folder
    server = stack.enter_context(GcsStandIn(_BUCKET))
    proxy = stack.enter_context(FaultyProxy(server.port))
    return CloudPlace("gcs", "gs", {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{proxy.port}"}, proxy)


def small_parts(uri: str) -> Store:
    """A store whose large objects are not too large for a test: 5 MiB is the least that S3 takes."""
    patience = Patience(answer_s=1.0, attempts=4, rounds=5, pause_s=0.0)
    return open_store(uri, StoreOptions(part_bytes=5 * 2**20, patience=patience))
