"""The identity of an account."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.home import Home
from cloudrec.providers.gcp.provider import GcpProvider
from cloudrec.spec.models import ClusterSpec


@pytest.mark.parametrize(
    ("environment", "account"),
    [
        ({}, "Google Cloud project one"),
        (
            {"GOOGLE_CLOUD_ENDPOINT_URL": "https://127.0.0.1:1/"},
            "Google Cloud project one at https://127.0.0.1:1",
        ),
    ],
)
def test_the_account_of_a_cluster_is_that_of_the_credentials_and_the_endpoint(
    tmp_path: Path, environment: dict[str, str], account: str
) -> None:
    provider = GcpProvider(Home(root=tmp_path), {"GOOGLE_CLOUD_PROJECT": "one", **environment})
    assert provider.account_of(ClusterSpec(provider="gcp")) == account
