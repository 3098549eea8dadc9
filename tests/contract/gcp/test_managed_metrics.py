"""cluster.metrics: managed on Google Cloud: GKE collects the metrics of GPUs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from google.api_core.exceptions import InvalidArgument
from google.cloud.container_v1.types import (
    ClusterUpdate,
    ManagedPrometheusConfig,
    MonitoringComponentConfig,
    MonitoringConfig,
)

from cloudrec.app.notices.launching import check_notified
from cloudrec.spec.models import ClusterSpec
from tests.contract.gcp.support import Site, whole
from tests.sandbox.gcp.support import Gcp as Cloud

CLUSTER = "projects/sandbox-project/locations/us-central1-a/clusters/cloudrec-t"
COMPONENTS = MonitoringComponentConfig.Component


def monitoring(cloud: Cloud) -> MonitoringConfig:
    return cloud.gke.get_cluster(name=CLUSTER).monitoring_config


def collects(config: MonitoringConfig) -> bool:
    components = set(config.component_config.enable_components)
    return (
        config.managed_prometheus_config.enabled
        and {
            COMPONENTS.SYSTEM_COMPONENTS,
            COMPONENTS.DCGM,
        }
        <= components
    )


def site_of(cloud: Cloud, folder: Path, metrics: str) -> Site:
    return whole(cloud, folder, zones=("us-central1-a",), metrics=metrics)


def test_a_new_cluster_collects_the_metrics_of_gpus_if_asked(cloud: Cloud, tmp_path: Path) -> None:
    before = cloud.state()
    site = site_of(cloud, tmp_path, "managed")
    site.up()
    assert collects(monitoring(cloud))
    assert site.planned() == {}
    site.down()
    assert cloud.state() == before


def test_a_cluster_gets_them_later_and_keeps_what_others_switched_on(cloud: Cloud, tmp_path: Path) -> None:
    site_of(cloud, tmp_path, "prometheus").up()
    assert not collects(monitoring(cloud))
    others = [COMPONENTS.SYSTEM_COMPONENTS, COMPONENTS.STORAGE]
    update = ClusterUpdate(
        desired_monitoring_config=MonitoringConfig(
            component_config=MonitoringComponentConfig(enable_components=others)
        )
    )
    cloud.gke.update_cluster(name=CLUSTER, update=update)
    cloud.advance(60)  # the change takes 5 s
    site = site_of(cloud, tmp_path, "managed")
    assert list(site.planned()) == ["cluster/t"]
    site.up()
    assert collects(monitoring(cloud))
    assert COMPONENTS.STORAGE in monitoring(cloud).component_config.enable_components
    assert site.planned() == {}


@pytest.mark.parametrize(
    ("components", "is_managed"),
    [((COMPONENTS.SYSTEM_COMPONENTS, COMPONENTS.DCGM), False), ((COMPONENTS.DCGM,), True)],
)
def test_the_stand_in_refuses_dcgm_without_what_it_needs(
    cloud: Cloud,
    tmp_path: Path,
    components: tuple[MonitoringComponentConfig.Component, ...],
    *,
    is_managed: bool,
) -> None:
    site_of(cloud, tmp_path, "off").up()
    wanted = MonitoringConfig(
        component_config=MonitoringComponentConfig(enable_components=components),
        managed_prometheus_config=ManagedPrometheusConfig(enabled=is_managed),
    )
    with pytest.raises(InvalidArgument):
        cloud.gke.update_cluster(name=CLUSTER, update=ClusterUpdate(desired_monitoring_config=wanted))


def test_the_setting_is_accepted_and_its_charges_are_named() -> None:
    check_notified(ClusterSpec(provider="gcp", metrics="managed"))


def test_the_alert_for_idle_gpus_has_the_fields_of_a_policy_and_a_valid_query(tmp_path: Path) -> None:
    file = Path(__file__).parents[3] / "infra" / "gcp" / "idle-gpus-alert.yaml"
    policy = yaml.safe_load(file.read_text(encoding="utf-8"))
    # AlertPolicy and its Condition, googleapis, google/monitoring/v3/alert.proto.
    assert set(policy) == {"displayName", "combiner", "conditions", "documentation"}
    assert policy["combiner"] in {"AND", "OR", "AND_WITH_MATCHING_RESOURCE"}
    (condition,) = policy["conditions"]
    assert set(condition) == {"displayName", "conditionPrometheusQueryLanguage"}
    query = condition["conditionPrometheusQueryLanguage"]
    assert set(query) == {"query", "duration", "evaluationInterval", "alertRule"}
    assert int(query["evaluationInterval"].removesuffix("s")) % 30 == 0
    if shutil.which("promtool") is None:
        pytest.skip("no promtool: `make prometheus-tools`")
    rule = {"alert": query["alertRule"], "expr": query["query"], "for": query["duration"]}
    rules = tmp_path / "rules.json"  # JSON is YAML
    rules.write_text(json.dumps({"groups": [{"name": "idle", "rules": [rule]}]}), encoding="utf-8")
    subprocess.run(["promtool", "check", "rules", rules], check=True, capture_output=True)
