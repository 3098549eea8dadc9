"""The guard's identity may see its cluster and scale the one pool that trains, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError

from cloudrec.providers.azure import client
from cloudrec.providers.azure.provider import AzureProvider
from tests.contract.azure.support import Site
from tests.contract.sandbox_azure.support import Azure

NAME = "cloudrec-t"


def test_with_its_own_rights_alone_the_guard_scales_the_pool_and_can_do_no_harm(
    azure: Azure, tmp_path: Path
) -> None:
    site = Site(azure, tmp_path, zones=["1"])
    site.up()
    told = site.provider.guard(site.cluster)
    row = site.sdk.client("managedidentity").user_assigned_identities.get(NAME, f"{NAME}-guard")
    assert told.annotations == {"azure.workload.identity/client-id": row.client_id}
    azure.advance(3600)  # what was granted is known everywhere
    secret = {"secret": "guard", "object_id": row.principal_id}
    azure.control(clients={row.client_id: secret}, enforce_iam=True)
    keys = {"AZURE_CLIENT_ID": row.client_id, "AZURE_CLIENT_SECRET": "guard", **told.environment}
    environment = {**azure.env, **keys}
    done = AzureProvider(site.home, environment).halt(told.cluster)
    assert [pool.partition("/")[0] for pool in done.pools] == [NAME]
    calls = client.Azure(environment).client("containerservice")
    with pytest.raises(HttpResponseError, match="AuthorizationFailed"):
        calls.managed_clusters.begin_delete(NAME, NAME)
    with pytest.raises(HttpResponseError, match="AuthorizationFailed"):
        calls.agent_pools.begin_delete(NAME, NAME, "system")
    azure.control(enforce_iam=False)
    site.down()
    assert azure.state() == []
