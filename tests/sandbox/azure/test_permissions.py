"""Permissions, where they are enforced: roles at a scope and below it, some time after they were granted."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from cloudrec_sandbox.azure.identity.tokens import KUBERNETES
from tests.conformance import support_clouds as clouds
from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_aks import (
    NAME,
    NETWORK_CONTRIBUTOR,
    QUOTAS,
    begin_cluster,
    body,
    grant,
    ground,
    make_cluster,
)
from tests.sandbox.azure.support_blobs import OPERATOR

CLIENT, PRINCIPAL = "12121212-3434-4565-8787-909090909090", "abababab-cdcd-4efe-8ada-bcbcbcbcbcbc"
READER, AKS_WRITER = "acdd72a7-3385-48ef-bd42-f606fba81ae7", "5f0c9a2e-1d3b-4c55-9a77-2f6c1b7d9e10"
RBAC_CLUSTER_ADMIN = "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b"
NAT = {"location": LOCATION, "sku": {"name": "Standard"}}


@pytest.fixture
def limited(azure: Azure) -> Iterator[Any]:
    """A credential of a principal without roles."""
    azure.group()
    azure.control(
        enforce_iam=True, clients={CLIENT: {"secret": CLIENT, "object_id": PRINCIPAL}}, quotas=QUOTAS
    )
    with azure.credential(client_id=CLIENT, client_secret=CLIENT) as credential:
        yield credential


def scope(azure: Azure, group: str = GROUP) -> str:
    return f"/subscriptions/{azure.subscription}/resourceGroups/{group}"


def test_a_caller_without_a_role_is_denied_everything(azure: Azure, limited: Any) -> None:
    with azure.client("resource", credential=limited) as client:
        action = "'Microsoft.Resources/subscriptions/resourceGroups/read'"
        words = (PRINCIPAL, CLIENT, action, f"/{GROUP}'")
        with refused("AuthorizationFailed", *words, status=403):
            client.resource_groups.get(GROUP)


def test_a_role_is_effective_some_time_after_it_is_granted(azure: Azure, limited: Any) -> None:
    grant(azure, PRINCIPAL, READER, scope(azure))
    with azure.client("resource", credential=limited) as client:
        with refused("AuthorizationFailed", status=403):
            client.resource_groups.get(GROUP)
        azure.advance(600)
        assert client.resource_groups.get(GROUP).name == GROUP


def test_a_role_applies_to_its_actions_below_its_scope(azure: Azure, limited: Any) -> None:
    azure.group("other")
    grant(azure, PRINCIPAL, NETWORK_CONTRIBUTOR, scope(azure))
    azure.advance(600)
    with azure.client("network", credential=limited) as client:
        azure.done(client.nat_gateways.begin_create_or_update, GROUP, "nat", NAT, seconds=60)
        assert [row.name for row in client.nat_gateways.list(GROUP)] == ["nat"]
        with refused("AuthorizationFailed", "natGateways/write", status=403):
            client.nat_gateways.begin_create_or_update("other", "nat", NAT)
        azure.done(client.nat_gateways.begin_delete, GROUP, "nat", seconds=60)
    with (
        azure.client("msi", credential=limited) as client,
        refused("AuthorizationFailed", "userAssignedIdentities/write", status=403),
    ):
        client.user_assigned_identities.create_or_update(GROUP, "one", {"location": LOCATION})


def test_resources_referenced_by_a_put_need_separate_permissions(azure: Azure, limited: Any) -> None:
    base = ground(azure)
    role = {
        "roleName": "AKS writer",
        "type": "CustomRole",
        "assignableScopes": [f"/subscriptions/{azure.subscription}"],
        "permissions": [{"actions": ["Microsoft.ContainerService/*"]}],
    }
    roles = azure.client("authorization").role_definitions
    roles.create_or_update(f"/subscriptions/{azure.subscription}", AKS_WRITER, {"properties": role})
    grant(azure, PRINCIPAL, AKS_WRITER, scope(azure))
    azure.advance(600)
    with azure.client("containerservice", credential=limited) as client:
        wish = body(base)
        with refused("LinkedAuthorizationFailed", "assign/action", base.identity, status=403):
            azure.begin(client.managed_clusters.begin_create_or_update, GROUP, NAME, wish)
    begin_cluster(azure, wish)


def test_owners_are_allowed_everything(azure: Azure, limited: Any) -> None:
    assert limited is not None
    assert make_cluster(azure).properties.provisioning_state == "Succeeded"


def test_permissions_are_checked_only_if_enabled(azure: Azure, limited: Any) -> None:
    azure.control(enforce_iam=False)
    with azure.client("resource", credential=limited) as client:
        assert client.resource_groups.get(GROUP).name == GROUP


def _answer(announced: Mapping[str, Any], token: str) -> tuple[int, str]:
    """The cluster's answer to a list of nodes: its status and its reason."""
    tls = ssl.create_default_context(cafile=announced["certificate_authority"])
    place = urlsplit(announced["endpoints"]["kubernetes"]).netloc
    connection = HTTPSConnection(place, timeout=60, context=tls)
    with closing(connection):
        connection.request("GET", "/api/v1/nodes", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, str(json.loads(answer.read()).get("reason", ""))


def test_who_created_a_cluster_may_nothing_in_it_until_its_role_counts(azure: Azure) -> None:
    azure.control(quotas=QUOTAS)
    azure.group()
    with clouds.stand_in("kubernetes") as server:
        announced = server._announcement
        azure.control(kubernetes=announced)
        profile = {"managed": True, "enableAzureRBAC": True}
        id_ = str(make_cluster(azure, body(aadProfile=profile, disableLocalAccounts=True)).id)
        token = azure.credential().get_token(f"{KUBERNETES}/.default").token

        def answers(*wanted: object) -> bool:
            return _answer(announced, token) == wanted

        clouds.until(lambda: answers(403, "Forbidden"), "the cluster knows the user")
        grant(azure, OPERATOR, RBAC_CLUSTER_ADMIN, id_)
        time.sleep(1)  # the link looks every 0.2 s
        assert answers(403, "Forbidden")
        azure.advance(600)
        clouds.until(lambda: answers(200, ""), "the role counts")
