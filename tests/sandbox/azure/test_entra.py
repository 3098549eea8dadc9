"""Who calls: tokens, secrets, tenants, subscriptions."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ClientAuthenticationError

from tests.sandbox.azure.support import GROUP, Azure, refused

SCOPE = "https://management.azure.com/.default"
OTHER = "99999999-8888-4777-8666-555555555555"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"client_secret": "wrong"}, "AADSTS7000215"),
        ({"client_id": OTHER}, "AADSTS700016"),
        ({"tenant_id": OTHER}, "Unable to get authority configuration"),  # MSAL's words for AADSTS90002
    ],
)
def test_an_unknown_client_gets_no_token(azure: Azure, changes: dict[str, str], code: str) -> None:
    with azure.credential(**changes) as credential, pytest.raises(ClientAuthenticationError) as caught:
        credential.get_token(SCOPE)
    assert code in str(caught.value)


def test_an_unknown_tenant_is_reported(azure: Azure) -> None:
    for path in ("oauth2/v2.0/token", "v2.0/.well-known/openid-configuration"):
        method = "POST" if path.endswith("token") else "GET"
        status, _, told = azure.raw(method, f"/{OTHER}/{path}")
        assert (status, told["error_codes"], told["error"]) == (400, [90002], "invalid_request")


def test_a_call_without_a_token_or_with_a_foreign_token_is_refused(azure: Azure) -> None:
    path = f"/subscriptions/{azure.subscription}/resourcegroups/{GROUP}?api-version=2025-04-01"
    for value, code in (("", "AuthenticationFailed"), ("Bearer a.b.c", "InvalidAuthenticationToken")):
        status, headers, told = azure.raw("GET", path, Authorization=value)
        assert (status, told["error"]["code"]) == (401, code)
        assert headers["www-authenticate"].startswith("Bearer authorization_uri=")


def test_a_token_for_another_service_is_refused(azure: Azure) -> None:
    with azure.credential() as credential:
        token = credential.get_token("https://storage.azure.com/.default").token
    status, _, told = azure.raw(
        "GET", "/subscriptions?api-version=2022-12-01", Authorization=f"Bearer {token}"
    )
    assert (status, told["error"]["code"]) == (401, "InvalidAuthenticationTokenAudience")


def test_a_token_of_another_tenant_is_refused(azure: Azure) -> None:
    azure.control(clients={OTHER: {"secret": OTHER, "object_id": OTHER, "tenant": OTHER}})
    with azure.credential(client_id=OTHER, client_secret=OTHER, tenant_id=OTHER) as credential:
        client = azure.client("resource", credential=credential)
        with client, refused("InvalidAuthenticationTokenTenant", status=401):
            client.resource_groups.get(GROUP)


def test_an_unknown_subscription_is_not_found(azure: Azure) -> None:
    with refused("SubscriptionNotFound", status=404):
        azure.client("resource", subscription=OTHER).resource_groups.get(GROUP)


def test_a_disabled_subscription_is_read_only(azure: Azure) -> None:
    azure.group()
    azure.control(subscriptions={azure.subscription: "Disabled"})
    subscriptions = azure.client("subscription").subscriptions
    assert subscriptions.get(azure.subscription).state == "Disabled"
    with refused("ReadOnlyDisabledSubscription", status=409):
        azure.group("other")
    assert azure.client("resource").resource_groups.get(GROUP).name == GROUP
    azure.done(azure.client("resource").resource_groups.begin_delete, GROUP)


def test_a_subscription_lists_its_regions_and_their_zones(azure: Azure) -> None:
    rows = {
        row.name: row for row in azure.client("subscription").subscriptions.list_locations(azure.subscription)
    }
    assert [zone.logical_zone for zone in rows["eastus"].availability_zone_mappings] == ["1", "2", "3"]
    assert rows["westus"].availability_zone_mappings is None
