"""A Lustre file system that is filled from the cluster's container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import CloudrecError, PreflightError
from cloudrec_sandbox.azure.services.authorization.principals import STORAGE_CACHE
from tests.contract.azure.support import Site
from tests.contract.azure.support_deployer import Deployer
from tests.contract.azure.test_cluster_side import ZONES
from tests.contract.azure.test_reservations import assign
from tests.sandbox.azure.support import Azure

FILLED: dict[str, Any] = {
    "zones": ZONES[:1],
    "capacity": "spot",
    "settings": {"lustre_tib": 8, "lustre_importer": STORAGE_CACHE, "prefix": "team/a"},
}
_KEYS = "17d1049b-9a84-46fb-8f53-869881c3d3ab"  # Storage Account Contributor


def service_roles(site: Site) -> list[str]:
    """The roles that the service has, by their ids."""
    rows = site.sdk.authorization.role_assignments.list_for_subscription()
    return sorted(
        row.role_definition_id.rpartition("/")[2] for row in rows if row.principal_id == STORAGE_CACHE
    )


def test_up_lets_the_service_read_the_container_train_imports_and_down_removes_all(
    azure: Azure, tmp_path: Path
) -> None:
    before = azure.state()
    site = Site(azure, tmp_path, **FILLED)
    site.up()
    assert len(service_roles(site)) == 2
    assert not site.planned()
    cluster, provider = site.cluster, site.provider
    (lustre,) = [tier for tier in provider.data_places(cluster).tiers if tier.name == "lustre"]
    assert (lustre.lacks, lustre.holds(660)) == ("", True)
    provider.fill_lustre(cluster, "data/criteo")
    assert provider.path_in_lustre(cluster, "data/criteo") == "team/a/data/criteo"
    (imported,) = azure.control()["lustre_imported"].values()
    assert imported == ["/", "/team/a/data/criteo"]
    site.down()
    assert azure.state() == before


def test_a_failed_import_says_why_and_where_its_log_is(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, **FILLED)
    site.up()
    client = site.sdk.authorization.role_assignments
    for row in list(client.list_for_subscription()):
        if row.principal_id == STORAGE_CACHE:
            client.delete_by_id(row.id)
    with pytest.raises(CloudrecError, match=r"no access to the storage account.*cloudrec-lustre-logs"):
        site.provider.fill_lustre(site.cluster, "data")


def test_a_cluster_without_such_a_file_system_has_nothing_to_fill(azure: Azure, tmp_path: Path) -> None:
    site = Site(azure, tmp_path, zones=ZONES[:1], capacity="spot", settings={"lustre_tib": 8})
    site.up()
    (lustre,) = [tier for tier in site.provider.data_places(site.cluster).tiers if tier.name == "lustre"]
    assert "lustre_importer" in lustre.remedy
    assert lustre.lacks
    with pytest.raises(PreflightError, match="no Lustre file system that is filled"):
        site.provider.fill_lustre(site.cluster, "data")
    assert [action.key for action in Site(azure, tmp_path, **FILLED).planned().values()]


def test_a_deployer_is_given_the_command_for_an_owner(azure: Azure, tmp_path: Path) -> None:
    deployer = Deployer(azure, tmp_path, wide=True)
    deployer.site = Site(azure, tmp_path, **FILLED)
    with pytest.raises(CloudrecError, match="lacks Storage Account Contributor") as caught:
        deployer.act("up")
    assert caught.value.exit_code == 3
    found = re.search(r"--role (\S+) --assignee-object-id (\S+) .*--scope (\S+)`", str(caught.value.remedy))
    assert found is not None
    assert found[1] == _KEYS
    assign(azure, found[2], found[3], role=found[1])
    deployer.act("up")
    assert len(service_roles(deployer.site)) == 2
    deployer.act("down")
    assert service_roles(deployer.site) == []  # the owner's is gone with the resource group


def test_another_principal_than_the_services_is_refused_with_the_way_to_find_it(
    azure: Azure, tmp_path: Path
) -> None:
    settings = {**FILLED["settings"], "lustre_importer": "bbbbbbbb-cccc-4ddd-8eee-ffffffffffff"}
    site = Site(azure, tmp_path, **{**FILLED, "settings": settings})
    with pytest.raises(CloudrecError, match="cannot read the container") as caught:
        site.up()
    assert "az ad sp list" in str(caught.value.remedy)
    assert caught.value.exit_code == 3
