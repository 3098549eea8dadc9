"""Which Azure is reached, and where, as the environment says."""

from __future__ import annotations

import pytest

from cloudrec.providers.azure.credentials import Login


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
def test_where_one_logs_in_tells_which_azure_it_is(host: str | None, endpoint: str, scope: str) -> None:
    login = Login({"AZURE_AUTHORITY_HOST": host} if host else {})
    assert (login.endpoint, login.scopes) == (endpoint, [scope])


def test_an_endpoint_that_is_named_is_taken_and_its_certificate_checked_as_told() -> None:
    there = {
        "AZURE_RESOURCE_MANAGER_ENDPOINT_URL": "https://127.0.0.1:5001/",
        "AZURE_CA_BUNDLE": "/tmp/ca.pem",  # noqa: S108 - never opened
    }
    login = Login(there)
    assert login.endpoint == "https://127.0.0.1:5001"
    assert login.verify == "/tmp/ca.pem"  # noqa: S108 - never opened
    assert Login({}).verify is True
