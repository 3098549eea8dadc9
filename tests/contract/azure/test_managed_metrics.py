"""cluster.metrics: managed on Azure: AKS's agent, and the workspace, endpoint and rule of its metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.core.exceptions import HttpResponseError

from cloudrec.app.notices.launching import check_notified
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure.api import models as azure_models
from cloudrec.spec.models import ClusterSpec
from tests.contract.azure.support import Site
from tests.contract.azure.support_deployer import ACTIONS, Deployer
from tests.sandbox.azure.support import Azure

GROUP = "cloudrec-t"
INFRA = Path(__file__).parents[3] / "infra"
_INSIGHTS, _VERSION = "Microsoft.Insights", "2022-06-01"
KINDS = {"metrics-workspace", "metrics-endpoint", "metrics-rule", "metrics-association"}
# What a deployer calls for the service alone.
OF_SERVICE = tuple(
    action
    for action in ACTIONS
    if action.startswith(("Microsoft.Monitor/accounts/", f"{_INSIGHTS}/data"))
    and not action.endswith("/read")
)


def of(site: Site, kind: str) -> str:
    """The id of one of the resources in the cluster's group."""
    return f"/subscriptions/{site.sdk.subscription}/resourceGroups/{GROUP}/providers/{kind}/{GROUP}"


def association_of(site: Site) -> str:
    cluster = of(site, "Microsoft.ContainerService/managedClusters")
    return f"{cluster}/providers/{_INSIGHTS}/dataCollectionRuleAssociations/{GROUP}"


def get(site: Site, identity: str, version: str = _VERSION) -> Mapping[str, Any]:
    row = site.sdk.resources.resources.get_by_id(identity, api_version=version)
    properties: Mapping[str, Any] = row.properties
    return properties


def is_monitored(site: Site) -> bool:
    row = site.sdk.containerservice.managed_clusters.get(GROUP, GROUP)
    profile = row.azure_monitor_profile
    return bool(profile and profile.metrics and profile.metrics.enabled)


def managed(azure: Azure, folder: Path, **more: Any) -> Site:
    return Site(azure, folder, ttl="8h", metrics="managed", **more)


def kinds_of(site: Site) -> set[str]:
    return {key.partition("/")[0] for key in site.found()} & KINDS


def test_up_creates_what_the_agent_needs_and_down_removes_it_with_azures_own_group(
    azure: Azure, tmp_path: Path
) -> None:
    deployer = Deployer(azure, tmp_path)
    deployer.site = site = managed(azure, tmp_path)
    deployer.act("up")
    assert is_monitored(site)
    assert kinds_of(site) == KINDS
    rule = get(site, of(site, f"{_INSIGHTS}/dataCollectionRules"))
    (account,) = rule["destinations"]["monitoringAccounts"]
    assert account["accountResourceId"].lower() == of(site, "Microsoft.Monitor/accounts").lower()
    assert rule["dataFlows"] == [
        {"streams": ["Microsoft-PrometheusMetrics"], "destinations": [account["name"]]}
    ]
    associated = get(site, association_of(site))["dataCollectionRuleId"]
    assert associated.lower() == of(site, f"{_INSIGHTS}/dataCollectionRules").lower()
    assert any("ma_cloudrec-t_" in each.lower() for each in azure.state())  # the group that Azure makes
    since = len(azure.calls())
    deployer.act("up")
    assert site.changes(since) == []
    deployer.act("down")
    assert azure.state() == deployer.before


def test_a_cluster_gets_the_service_later_and_gives_it_back(standing: Site, tmp_path: Path) -> None:
    assert not is_monitored(standing)
    site = Site(standing.azure, tmp_path, metrics="managed")
    assert {key.partition("/")[0] for key in site.planned()} == {*KINDS, "cluster", "registration"}
    site.up()
    assert is_monitored(site)
    assert kinds_of(site) == KINDS
    assert site.planned() == {}
    standing.up()
    assert kinds_of(standing) == set()
    assert is_monitored(standing)  # others may use the agent, too
    assert standing.planned() == {}


def test_a_rule_of_another_workspace_and_a_lost_association_are_put_right(
    azure: Azure, tmp_path: Path
) -> None:
    site = managed(azure, tmp_path)
    site.up()
    calls, model = site.sdk.resources.resources, azure_models.resources.GenericResource
    other = of(site, "Microsoft.Monitor/accounts").replace(f"accounts/{GROUP}", "accounts/other")
    calls.begin_create_or_update_by_id(
        other, model(location="eastus", properties={}), api_version="2023-04-03"
    ).result()
    identity = of(site, f"{_INSIGHTS}/dataCollectionRules")
    row = calls.get_by_id(identity, api_version=_VERSION)
    row.properties["destinations"]["monitoringAccounts"][0]["accountResourceId"] = other
    calls.begin_create_or_update_by_id(identity, row, api_version=_VERSION).result()
    calls.begin_delete_by_id(association_of(site), api_version=_VERSION).result()
    assert set(site.planned()) == {"metrics-rule/t", "metrics-association/t"}
    site.up()
    (account,) = get(site, identity)["destinations"]["monitoringAccounts"]
    assert account["accountResourceId"].endswith(f"/{GROUP}")
    assert site.planned() == {}


def test_a_name_that_is_too_long_for_an_endpoint_is_cut(azure: Azure, tmp_path: Path) -> None:
    before = azure.state()
    site = managed(azure, tmp_path, name="a-team-of-rankers-in-the-east-and-west")
    site.up()
    assert kinds_of(site) == KINDS
    assert site.planned() == {}
    site.down()
    assert azure.state() == before


def test_a_role_without_the_service_removes_a_cluster_that_does_not_use_it(
    azure: Azure, tmp_path: Path
) -> None:
    deployer = Deployer(azure, tmp_path)
    older = [
        action
        for action in ACTIONS
        if not action.startswith(("Microsoft.Monitor/", f"{_INSIGHTS}/", "Microsoft.AlertsManagement/"))
    ]
    assert len(ACTIONS) - len(older) == 16
    deployer.allow(older)
    deployer.come_and_go()
    assert azure.state() == deployer.before


@pytest.mark.parametrize("action", OF_SERVICE)
def test_each_action_of_the_service_is_needed(azure: Azure, tmp_path: Path, action: str) -> None:
    deployer = Deployer(azure, tmp_path)
    deployer.site = managed(azure, tmp_path)
    deployer.lacks(action)


def put(site: Site, identity: str, body: dict[str, Any], version: str = _VERSION) -> None:
    model = azure_models.resources.GenericResource(body)
    of_any = site.sdk.resources.resources
    of_any.begin_create_or_update_by_id(identity, model, api_version=version).result()


def test_the_stand_in_refuses_what_azure_monitor_refuses(azure: Azure, tmp_path: Path) -> None:
    site = managed(azure, tmp_path)
    site.up()
    rule, endpoint = (
        of(site, f"{_INSIGHTS}/dataCollectionRules"),
        of(site, f"{_INSIGHTS}/dataCollectionEndpoints"),
    )
    good = dict(get(site, rule))
    wrong: list[dict[str, Any]] = [
        {**good, "dataCollectionEndpointId": f"{endpoint}-other"},
        {**good, "dataCollectionEndpointId": None},
        {**good, "destinations": {"monitoringAccounts": []}},
        {**good, "dataFlows": [{"streams": ["Microsoft-Perf"], "destinations": ["MonitoringAccount1"]}]},
        {**good, "surprise": True},
    ]
    for properties in wrong:
        with pytest.raises(HttpResponseError):
            put(site, rule, {"location": "eastus", "kind": "Linux", "properties": properties})
    with pytest.raises(HttpResponseError, match="must be in westus2"):
        put(site, f"{rule}-far", {"location": "westus2", "properties": good})
    with pytest.raises(HttpResponseError, match="configurationAccessEndpoint"):
        put(site, association_of(site), {"properties": {"dataCollectionEndpointId": endpoint}})
    nowhere = association_of(site).replace(f"managedClusters/{GROUP}", "managedClusters/none")
    with pytest.raises(HttpResponseError, match="none"):
        put(site, nowhere, {"properties": {"dataCollectionRuleId": rule}})
    with pytest.raises(HttpResponseError, match="AssociationsExist"):
        site.sdk.resources.resources.begin_delete_by_id(rule, api_version=_VERSION).result()


def test_aks_refuses_the_agent_until_the_providers_are_registered(standing: Site) -> None:
    calls = standing.sdk.containerservice.managed_clusters
    row = calls.get(GROUP, GROUP)
    of_aks = azure_models.containerservice
    row.properties.azure_monitor_profile = of_aks.ManagedClusterAzureMonitorProfile(
        metrics=of_aks.ManagedClusterAzureMonitorProfileMetrics(enabled=True)
    )
    with pytest.raises(HttpResponseError, match=r"namespace 'Microsoft\.Insights'"):
        calls.begin_create_or_update(GROUP, GROUP, row)


def test_a_region_without_workspaces_is_named(azure: Azure, tmp_path: Path) -> None:
    azure.control(
        faults=[
            {
                "kind": "error",
                "service": "monitor",
                "action": "Put accounts",
                "times": 9,
                "status": 400,
                "code": "LocationNotAvailableForResourceType",
                "message": "The provided location 'eastus' is not available for resource type.",
            }
        ]
    )
    with pytest.raises(CloudrecError, match="eastus"):
        managed(azure, tmp_path).up()


def test_the_setting_is_accepted() -> None:
    check_notified(ClusterSpec(provider="azure", metrics="managed"))


def deployed(template: Mapping[str, Any], site: Site, **parameters: str) -> dict[str, Any]:
    """The one resource of a template, with its expressions evaluated as Azure does for this cluster."""
    assert set(template["parameters"]) == set(parameters)
    text = json.dumps(template["resources"])
    values = {
        "[resourceGroup().location]": "eastus",
        "[resourceId('Microsoft.Monitor/accounts', parameters('clusterName'))]": of(
            site, "Microsoft.Monitor/accounts"
        ),
        "[concat(parameters('clusterName'), '-idle-gpus')]": f"{parameters['clusterName']}-idle-gpus",
        **{f"[parameters('{name}')]": value for name, value in parameters.items()},
    }
    for expression, value in values.items():
        text = text.replace(json.dumps(expression), json.dumps(value))
    assert "parameters(" not in text
    (resource,) = json.loads(text)
    return resource


def test_the_alarm_for_idle_gpus_is_accepted_for_the_clusters_workspace(azure: Azure, tmp_path: Path) -> None:
    site = managed(azure, tmp_path)
    site.up()
    template = json.loads((INFRA / "azure" / "idle-gpus-alarm.json").read_text(encoding="utf-8"))
    group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Insights/actionGroups/a"
    resource = deployed(template, site, clusterName=GROUP, actionGroup=group)
    rules = yaml.safe_load((INFRA / "prometheus" / "cloudrec-rules.yaml").read_text(encoding="utf-8"))
    (own,) = [
        each for of in rules["groups"] for each in of["rules"] if each.get("alert") == "CloudrecGpusIdle"
    ]
    (rule,) = resource["properties"]["rules"]
    assert (rule["alert"], rule["expression"], rule["for"]) == (own["alert"], own["expr"], "PT15M")
    identity = f"{of(site, resource['type']).rpartition('/')[0]}/{resource['name']}"
    kept = {name: resource[name] for name in ("location", "properties")}
    put(site, identity, kept, resource["apiVersion"])
    wrong = {**resource["properties"], "scopes": [of(site, f"{_INSIGHTS}/dataCollectionRules")]}
    with pytest.raises(HttpResponseError, match="ScopeNotFound"):
        put(site, identity, {**kept, "properties": wrong}, resource["apiVersion"])
    changes: list[dict[str, Any]] = [
        {"interval": "PT30S"},
        {"scopes": []},
        {"rules": [{**rule, "severity": 0}]},
    ]
    for change in changes:
        with pytest.raises(HttpResponseError):
            put(site, identity, {**kept, "properties": {**resource["properties"], **change}}, "2023-03-01")
    site.down()
    assert not any("prometheusrulegroups" in each.lower() for each in azure.state())
