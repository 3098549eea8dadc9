"""What GKE refuses of disks and of maintenance policies, and what of a pool has no effect."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud.container_v1 import (
    MaintenanceExclusionOptions,
    MaintenancePolicy,
    NodePool,
    TimeWindow,
)

from tests.sandbox.gcp.support import PROJECT, Gcp, refused
from tests.sandbox.gcp.support_gke import PATH, done, ready

H200 = {"accelerator_type": "nvidia-h200-141gb", "accelerator_count": 8}
Scope = MaintenanceExclusionOptions.Scope
Until = MaintenanceExclusionOptions.EndTimeBehavior


@pytest.fixture
def there(gcp: Gcp) -> Gcp:
    ready(gcp)
    return gcp


@pytest.mark.parametrize("disk", ["", "pd-balanced", "pd-ssd"])
def test_a_machine_type_without_persistent_disk_needs_hyperdisk(there: Gcp, disk: str) -> None:
    config = {"machine_type": "a3-ultragpu-8g", "disk_type": disk, "accelerators": [H200]}
    wish = NodePool({"name": "gpu", "locations": ["us-central1-b"], "config": config})
    with refused("INVALID_ARGUMENT", "disk type cannot be used by a3-ultragpu-8g machine type"):
        there.gke.create_node_pool(parent=PATH, node_pool=wish)
    wish.config.disk_type = "hyperdisk-balanced"
    done(there, there.gke.create_node_pool(parent=PATH, node_pool=wish))


def policy(days: int, scope: Scope, until: Until = Until.END_TIME_BEHAVIOR_UNSPECIFIED) -> MaintenancePolicy:
    """A policy with one exclusion, which has an end time unless `days` is 0."""
    now = datetime.now(UTC)
    made = MaintenancePolicy()
    made.window.maintenance_exclusions["mine"] = TimeWindow(
        start_time=now,
        end_time=now + timedelta(days=days) if days else None,
        maintenance_exclusion_options=MaintenanceExclusionOptions(scope=scope, end_time_behavior=until),
    )
    return made


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (policy(31, Scope.NO_UPGRADES), "lasts longer than 30 days"),
        (policy(0, Scope.NO_MINOR_OR_NODE_UPGRADES), "must end after its start"),
        (policy(0, Scope.NO_UPGRADES, Until.UNTIL_END_OF_SUPPORT), "needs an end time"),
    ],
)
def test_an_exclusion_without_a_valid_end_is_refused(
    there: Gcp, wanted: MaintenancePolicy, told: str
) -> None:
    with refused("INVALID_ARGUMENT", told):
        there.gke.set_maintenance_policy(request={"name": PATH, "maintenance_policy": wanted})


def test_a_maintenance_policy_is_replaced_by_the_holder_of_its_version(there: Gcp) -> None:
    wanted = policy(0, Scope.NO_MINOR_OR_NODE_UPGRADES, Until.UNTIL_END_OF_SUPPORT)
    done(there, there.gke.set_maintenance_policy(request={"name": PATH, "maintenance_policy": wanted}))
    kept = there.gke.get_cluster(name=PATH).maintenance_policy
    assert kept.window.maintenance_exclusions["mine"].end_time > datetime.now(UTC) + timedelta(days=30)
    with refused("FAILED_PRECONDITION", "resource version"):
        there.gke.set_maintenance_policy(request={"name": PATH, "maintenance_policy": wanted})


def streaming(gcp: Gcp) -> list[str]:
    found: dict[str, list[str]] = gcp.control()["effects"]
    return [name.rpartition("/")[2] for name in found["image_streaming"]]


def test_image_streaming_needs_its_api_and_a_role_of_the_nodes_account(there: Gcp) -> None:
    _, account = there.rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "nodes-of-one"})
    there.advance(60)
    config: dict[str, Any] = {
        "machine_type": "e2-standard-4",
        "service_account": account["email"],
    }
    for name, on in (("streams", True), ("plain", False)):
        wish = NodePool({"name": name, "config": {**config, "gcfs_config": {"enabled": on}}})
        done(there, there.gke.create_node_pool(parent=PATH, node_pool=wish))
    api = "containerfilesystem.googleapis.com"
    there.control(apis={api: True})
    assert streaming(there) == []  # accepted without the role
    holder = f"/v3/projects/{PROJECT}"
    policy = there.rest("POST", f"{holder}:getIamPolicy", {})[1]
    role = "roles/serviceusage.serviceUsageConsumer"
    policy["bindings"].append({"role": role, "members": [f"serviceAccount:{account['email']}"]})
    assert there.rest("POST", f"{holder}:setIamPolicy", {"policy": policy})[0] == 200
    there.advance(600)
    assert streaming(there) == ["streams"]
    there.control(apis={api: False})
    assert streaming(there) == []
