"""The role that a person applies once: all that is called, and nothing by a wildcard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cloudrec.home import Home
from cloudrec.providers.gcp import access, provider, quota
from tests.contract.gcp.support import Site
from tests.contract.gcp.test_leftovers import claim, ingress, service
from tests.contract.sandbox_gcp.support import Gcp as Cloud

FOLDER = Path(__file__).parents[3] / "infra" / "gcp"
ROLES = [yaml.safe_load((FOLDER / name).read_text()) for name in ("deployer-role.yaml", "binder-role.yaml")]
ALLOWED = {permission for role in ROLES for permission in role["includedPermissions"]}


def test_no_permission_is_a_wildcard_or_named_twice() -> None:
    listed = [permission for role in ROLES for permission in role["includedPermissions"]]
    assert not [permission for permission in listed if "*" in permission]
    assert len(listed) == len(set(listed))


def test_the_deployer_may_give_no_role_but_those_of_the_nodes() -> None:
    assert ROLES[1]["includedPermissions"] == ["resourcemanager.projects.setIamPolicy"]
    condition = (FOLDER / "grants.condition").read_text()
    assert "modifiedGrantsByRole" in condition
    assert "owner" not in condition


# An internal address wants a permission of its own, which the method alone does not tell.
INTERNAL = {"compute.globalAddresses.create": "compute.globalAddresses.createInternal"}


def permissions(cloud: Cloud, since: int) -> set[str]:
    asked = {call["iam_action"] for call in cloud.calls(since) if call["iam_action"]}
    return {INTERNAL.get(permission, permission) for permission in asked}


def now(cloud: Cloud) -> int:
    """The number of the last call."""
    return max((int(call["n"]) for call in cloud.calls()), default=0)


def life(cloud: Cloud, folder: Path) -> set[str]:
    """Make, change, ask about and remove a cluster with everything; the permissions that this took."""
    parts = provider.GcpProvider.parts
    given: dict[str, Any] = {"zones": ("us-central1-a",), "capacity": "spot-first"}
    since = now(cloud)
    site = Site(cloud, folder, parts=parts, **given, settings={"lustre_gib": 36000, "compact": False})
    quota.credentials(site.gcp)
    quota.findings(site.gcp, site.layout())
    site.up()
    told = access.of(site.layout(), site.gcp, Home(root=folder / "home"), cloud.env).details
    (volume,) = [each for each in told["volumes"] if each["name"] == "lustre"]
    assert volume["handle"].split("/")[1] == "us-central1-a"
    assert volume["attributes"]["filesystem"] == "data"
    changed = Site(cloud, folder, parts=parts, **given, nodes=2, settings={"cpu_nodes": 3})
    changed.up()
    called = permissions(cloud, since)
    service(cloud)
    ingress(cloud)
    claim(cloud)
    since = now(cloud)
    changed.down()
    for driver in changed.drivers.values():
        driver.search(None)
    return called | permissions(cloud, since)


def test_every_call_of_a_clusters_life_is_allowed(cloud: Cloud, tmp_path: Path) -> None:
    called = life(cloud, tmp_path)
    assert len(called) > 60
    assert called - ALLOWED == set()
