"""The Azure cloud and its endpoints, as set by the environment."""

from __future__ import annotations

import pytest

from cloudrec.providers.azure.account import Login


@pytest.mark.parametrize(
    ("host", "endpoint", "scope"),
    [
        (None, "https://management.azure.com", "https://management.azure.com/.default"),
        (
            "https://login.microsoftonline.us",
            "https://management.usgovcloudapi.net",
            "https://management.core.usgovcloudapi.net/.default",
        ),
        (
            "login.chinacloudapi.cn",
            "https://management.chinacloudapi.cn",
            "https://management.chinacloudapi.cn/.default",
        ),
    ],
)
def test_the_login_endpoint_determines_the_azure_cloud(host: str | None, endpoint: str, scope: str) -> None:
    login = Login({"AZURE_AUTHORITY_HOST": host} if host else {})
    assert (login.endpoint, login.scopes) == (endpoint, [scope])


def test_a_configured_endpoint_is_used_with_its_certificate_settings() -> None:
    there = {
        "AZURE_RESOURCE_MANAGER_ENDPOINT_URL": "https://127.0.0.1:5001/",
        "AZURE_CA_BUNDLE": "/tmp/ca.pem",  # noqa: S108 - never opened
    }
    login = Login(there)
    assert login.endpoint == "https://127.0.0.1:5001"
    assert login.verify == "/tmp/ca.pem"  # noqa: S108 - never opened
    assert Login({}).verify is True
