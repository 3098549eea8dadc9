"""The guard's identity can read its cluster and scale the training pool, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.core.exceptions import HttpResponseError

from cloudrec.providers.azure.api import client
from cloudrec.providers.azure.api import models as azure_models
from cloudrec.providers.azure.provider import AzureProvider
from cloudrec_sandbox.azure.identity import entra
from tests.contract.azure.support import Site
from tests.sandbox.azure.support import Azure

NAME = "cloudrec-t"
_READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"


def test_the_guard_identity_can_scale_the_training_pool_and_nothing_else(
    azure: Azure, tmp_path: Path
) -> None:
    site = Site(azure, tmp_path, zones=["1"])
    site.up()
    told = site.provider.guard(site.cluster)
    row: Any = site.sdk.managedidentity.user_assigned_identities.get(NAME, f"{NAME}-guard")
    assert told.annotations == {"azure.workload.identity/client-id": row.client_id}
    azure.advance(3600)  # role assignments have propagated
    secret = {"secret": "guard", "object_id": row.principal_id}
    azure.control(clients={row.client_id: secret}, enforce_iam=True)
    keys = {"AZURE_CLIENT_ID": row.client_id, "AZURE_CLIENT_SECRET": "guard", **told.environment}
    environment = {**azure.env, **keys}
    done = AzureProvider(site.home, environment).halt(told.cluster)
    assert [pool.partition("/")[0] for pool in done.pools] == [NAME]
    calls = client.Azure(environment).containerservice
    with pytest.raises(HttpResponseError, match="AuthorizationFailed"):
        calls.managed_clusters.begin_delete(NAME, NAME)
    with pytest.raises(HttpResponseError, match="AuthorizationFailed"):
        calls.agent_pools.begin_delete(NAME, NAME, "system")
    azure.control(enforce_iam=False)
    site.down()
    assert azure.state() == []


def scopes(site: Site) -> list[str]:
    """The pools that the guard may scale."""
    rows = site.sdk.authorization.role_assignments.list_for_subscription()
    found = [str(row.scope).rpartition("/")[2] for row in rows if ":guard-role/" in (row.description or "")]
    return sorted(found)


@pytest.mark.parametrize(("before", "after"), [("spot", "on-demand"), ("on-demand", "spot")])
def test_the_guard_may_scale_the_pool_of_another_capacity_type_after_one_up(
    azure: Azure, tmp_path: Path, before: str, after: str
) -> None:
    Site(azure, tmp_path, zones=["1"], capacity=before).up()
    site = Site(azure, tmp_path, zones=["1"], capacity=after)
    assert {"gpu-nodes/t", "guard-role/t"} <= site.planned().keys()
    site.up()
    (pool,) = [
        row.name for row in site.sdk.containerservice.agent_pools.list(NAME, NAME) if row.mode == "User"
    ]
    assert pool in scopes(site)
    assert site.planned() == {}
    assert scopes(site) == [pool]


def test_a_role_of_others_at_the_root_of_the_tenant_disturbs_no_search(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=["1"])
    models = azure_models.authorization
    # A global administrator who raises the access gets this: Azure lists it in every subscription.
    root = site.sdk.authorization.role_assignments.create(
        "/",
        str(uuid4()),
        models.RoleAssignmentCreateParameters(
            role_definition_id=f"/providers/Microsoft.Authorization/roleDefinitions/{_READER}",
            principal_id=entra.OBJECT,
            principal_type="ServicePrincipal",
        ),
    )
    rows = site.sdk.authorization.role_assignments.list_for_subscription()
    assert root.id in [row.id for row in rows]
    assert site.provider.search(None) == []
