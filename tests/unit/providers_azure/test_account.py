"""The identity of an account."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec.home import Home
from cloudrec.providers.azure.provider import AzureProvider
from cloudrec.spec.models import ClusterSpec


@pytest.mark.parametrize(
    ("environment", "account"),
    [
        ({}, "Azure subscription one"),
        (
            {"AZURE_RESOURCE_MANAGER_ENDPOINT_URL": "https://127.0.0.1:1/"},
            "Azure subscription one at https://127.0.0.1:1",
        ),
    ],
)
def test_the_account_of_a_cluster_is_that_of_the_credentials_and_the_endpoint(
    tmp_path: Path, environment: dict[str, str], account: str
) -> None:
    provider = AzureProvider(Home(root=tmp_path), {"AZURE_SUBSCRIPTION_ID": "one", **environment})
    assert provider.account_of(ClusterSpec(provider="azure")) == account
