"""An answer that is not the cloud's: a read is repeated and then an error with a remedy, a change is lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from cloudrec.engine.clock import Clock
from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import PreflightError, SpecError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.credentials import Kubeconfig
from cloudrec.kubernetes.client.errors import ApiUnreachableError
from cloudrec.kubernetes.client.wire import Wire
from cloudrec.providers.aws import errors as aws_errors
from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.azure import errors as azure_errors
from cloudrec.providers.azure.api.client import Azure
from cloudrec.providers.azure.api.operations import begin
from cloudrec.providers.gcp import errors as gcp_errors
from cloudrec.providers.gcp.api.client import Gcp
from tests.contract.support_foreign import FOREIGN, foreign

FAST = {"CLOUDREC_SANDBOX_SPEED": "100000"}
EACH = pytest.mark.parametrize("body", FOREIGN.values(), ids=list(FOREIGN))


def _aws(url: str) -> Aws:
    variables = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": url}
    return Aws({**FAST, **variables}, "us-east-1")


@EACH
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda aws: aws.iam.get_role(RoleName="x"), id="query"),
        pytest.param(lambda aws: aws.iam.delete_role(RoleName="x"), id="query-without-result"),
        pytest.param(lambda aws: aws.ec2.describe_vpcs(), id="ec2"),
        pytest.param(lambda aws: aws.eks.describe_cluster(name="x"), id="rest-json"),
        pytest.param(lambda aws: aws.kms.describe_key(KeyId="x"), id="json"),
        pytest.param(lambda aws: aws.s3.list_buckets(), id="rest-xml"),
    ],
)
def test_aws_in_each_protocol(body: bytes, call: Callable[[Aws], object]) -> None:
    with foreign(body) as url, pytest.raises(aws_errors.REFUSALS) as raised:
        call(_aws(url))
    assert aws_errors.verdict(raised.value) is ErrorVerdict.LOST
    assert aws_errors.is_transient(raised.value)
    explained = aws_errors.explain(raised.value)
    assert isinstance(explained, PreflightError)
    assert "what answers is not AWS" in explained.message


@EACH
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda azure: azure.read(azure.resources.resource_groups.get, "x"), id="read"),
        pytest.param(lambda azure: azure.rows(azure.resources.resource_groups.list), id="list"),
        pytest.param(
            lambda azure: azure.resources.resource_groups.create_or_update("x", {"location": "eastus"}),
            id="change",
        ),
        pytest.param(
            lambda azure: begin(
                azure.containerservice.managed_clusters.begin_create_or_update,
                "x",
                "y",
                {"location": "eastus"},
            ),
            id="operation",
        ),
    ],
)
def test_azure(body: bytes, call: Callable[[Azure], object], monkeypatch: pytest.MonkeyPatch) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"oid": "o", "tid": "t"}).encode()).decode().rstrip("=")
    monkeypatch.setenv("NO_PROXY", "*")
    with foreign(body) as url:
        azure = Azure(
            {**FAST, "AZURE_SUBSCRIPTION_ID": "s", "AZURE_RESOURCE_MANAGER_ENDPOINT_URL": url}, "eastus"
        )
        azure.login.__dict__["credential"] = _Token(f"x.{claims}.y")
        with pytest.raises(AzureError) as raised:
            call(azure)
    assert azure_errors.verdict(raised.value, azure_errors.Grants(Clock())) is ErrorVerdict.LOST
    assert azure_errors.is_transient(raised.value)
    assert isinstance(azure_errors.explain(raised.value), PreflightError)


class _Token:
    def __init__(self, text: str) -> None:
        self.text = text

    def get_token(self, *_scopes: str, **_options: object) -> object:
        from azure.core.credentials import AccessToken  # noqa: PLC0415

        return AccessToken(self.text, 4_000_000_000)


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account's key, whose private key is this test's own."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    path = tmp_path_factory.mktemp("key") / "key.json"
    path.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": "p",
                "private_key": pem,
                "private_key_id": "i",
                "client_email": "a@p.iam.gserviceaccount.com",
                "token_uri": "http://127.0.0.1:1/token",
            }
        )
    )
    return path


def _gcp(url: str, key_file: Path) -> Gcp:
    gcp = Gcp(
        {
            **FAST,
            "GOOGLE_CLOUD_ENDPOINT_URL": url,
            "GOOGLE_CLOUD_PROJECT": "p",
            "GOOGLE_APPLICATION_CREDENTIALS": str(key_file),
        },
        "us-central1",
    )
    from google.oauth2.credentials import Credentials  # noqa: PLC0415

    gcp.__dict__["_loaded"] = (Credentials("token"), "p")
    return gcp


@EACH
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda gcp: gcp.region, id="compute"),
        pytest.param(lambda gcp: gcp.repeat(lambda: gcp.send("iam", "GET", "/v1/x")), id="iam"),
        pytest.param(lambda gcp: gcp.repeat(lambda: gcp.storage.get_bucket("b", retry=None)), id="storage"),
    ],
)
def test_google_cloud(body: bytes, call: Callable[[Gcp], object], key_file: Path) -> None:
    with foreign(body) as url, pytest.raises(gcp_errors.REFUSALS) as raised:
        call(_gcp(url, key_file))
    assert gcp_errors.verdict(raised.value, gcp_errors.Fresh(Clock())) is ErrorVerdict.LOST
    assert gcp_errors.is_transient(raised.value)
    assert isinstance(gcp_errors.explain(raised.value), PreflightError)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GOOGLE_CLOUD_GRPC_ENDPOINT", "evil.example:443"),
        ("GOOGLE_CLOUD_GRPC_ENDPOINT", "dns:///evil.example:443"),
        ("GOOGLE_CLOUD_GRPC_ENDPOINT", "127.0.0.1.evil.example:80"),
        ("GOOGLE_CLOUD_ENDPOINT_URL", "http://evil.example"),
        ("GOOGLE_CLOUD_ENDPOINT_URL", "http://127.0.0.1@evil.example"),
    ],
)
def test_a_token_of_google_cloud_is_not_sent_in_clear_to_another_machine(
    variable: str, value: str, key_file: Path
) -> None:
    gcp = _gcp("", key_file)
    gcp._environment = {variable: value}
    with pytest.raises(SpecError, match="without encryption"):
        _ = gcp.container if variable.endswith("GRPC_ENDPOINT") else gcp.endpoint


@pytest.mark.parametrize("body", [FOREIGN["html"], FOREIGN["bytes"], FOREIGN["half"]])
def test_a_kubernetes_api(body: bytes, tmp_path: Path) -> None:
    with foreign(body) as url:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": url}}],
            "users": [{"name": "a", "user": {"token": "t"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document))
        wire = Wire(Kubeconfig(path, ""), patience_s=0.1)
        with pytest.raises(ApiUnreachableError, match="not of an API server"):
            Kube(wire).get("Pod", "x", namespace="default")
        wire.close()
