"""The requests to AKS for a cluster, and the interpretation of its responses."""

from __future__ import annotations

from typing import Any, cast

import pytest
from azure.mgmt.containerservice import models

from cloudrec.engine.graph import Condition
from cloudrec.providers.azure.api.aks import agrees, condition_of, minor
from cloudrec.providers.azure.cluster import cluster, cluster_model
from tests.unit.providers_azure.support import layout

IDENTITY = (
    "/subscriptions/s/resourcegroups/cloudrec-t/providers/Microsoft.ManagedIdentity/userAssignedIdentities/c"
)


class Kubelet:
    """The identity of the nodes as an SDK model."""

    id, client_id, principal_id = "kubelet-id", "client", "principal"


def body(**settings: Any) -> dict[str, Any]:
    (resource,) = cluster.resources(layout(**settings))
    made = cluster_model.cluster(
        resource.properties,
        name="cloudrec-t",
        version="1.35",
        tags=resource.tags,
        subnet="subnet-id",
        identity=IDENTITY,
        kubelet=cast("Any", Kubelet),
    )
    written: dict[str, Any] = made.as_dict()
    return written


def test_a_cluster_is_private_and_without_passwords() -> None:
    asked = body()
    tags = asked.pop("tags")
    assert tags["cloudrec-key"] == "cluster/t"
    assert asked == {
        "location": "eastus",
        "sku": {"name": "Base", "tier": "Free"},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {IDENTITY: {}}},
        "properties": {
            "kubernetesVersion": "1.35",
            "dnsPrefix": "cloudrec-t",
            "nodeResourceGroup": "cloudrec-t-nodes",
            "enableRBAC": True,
            "agentPoolProfiles": [
                {
                    "name": "system",
                    "mode": "System",
                    "type": "VirtualMachineScaleSets",
                    "count": 2,
                    "vmSize": "Standard_D4s_v5",
                    "osType": "Linux",
                    "osSKU": "Ubuntu",
                    "orchestratorVersion": "1.35",
                    "vnetSubnetID": "subnet-id",
                    "availabilityZones": ["1", "2"],
                    "nodeLabels": {"cloudrec.io/nodes": "cpu"},
                    "tags": tags,
                }
            ],
            "identityProfile": {
                "kubeletidentity": {
                    "resourceId": "kubelet-id",
                    "clientId": "client",
                    "objectId": "principal",
                }
            },
            "networkProfile": {
                "networkPlugin": "azure",
                "networkPluginMode": "overlay",
                "networkDataplane": "cilium",
                "networkPolicy": "cilium",
                "podCidr": "10.244.0.0/16",
                "serviceCidr": "10.96.0.0/16",
                "dnsServiceIP": "10.96.0.10",
                "loadBalancerSku": "standard",
                "outboundType": "userAssignedNATGateway",
            },
            "apiServerAccessProfile": {
                "enablePrivateCluster": True,
                "privateDNSZone": "system",
                "enablePrivateClusterPublicFQDN": False,
            },
            "disableLocalAccounts": True,
            "aadProfile": {"managed": True, "enableAzureRBAC": True},
            "oidcIssuerProfile": {"enabled": True},
            "securityProfile": {"workloadIdentity": {"enabled": True}},
            "storageProfile": {"blobCSIDriver": {"enabled": True}},
            "autoUpgradeProfile": {"upgradeChannel": "none", "nodeOSUpgradeChannel": "None"},
        },
    }


def test_authorized_ranges_make_the_api_server_public() -> None:
    asked = body(access="203.0.113.0/24")["properties"]["apiServerAccessProfile"]
    assert asked == {"enablePrivateCluster": False, "authorizedIPRanges": ["203.0.113.0/24"]}


def test_an_uptime_guarantee_is_a_tier_with_a_price() -> None:
    assert body(uptime_sla=True)["sku"]["tier"] == "Standard"
    free, standard = (cluster.resources(layout(uptime_sla=sla))[0].hourly_usd for sla in (False, True))
    assert free
    assert standard == pytest.approx(free + 0.1)


def test_a_pool_in_a_region_without_zones_has_no_zone() -> None:
    assert "availabilityZones" not in body(zones=("",))["properties"]["agentPoolProfiles"][0]


def pool(state: str, code: str = "", message: str = "") -> Any:
    error = {"status": {"provisioningError": {"code": code, "message": message}}} if code else {}
    return models.AgentPool({"properties": {"provisioningState": state, **error}})


@pytest.mark.parametrize("state", ["Creating", "Updating", "Scaling", "Upgrading", "Canceling", "Starting"])
def test_a_resource_in_progress_is_not_ready(state: str) -> None:
    assert condition_of(pool(state))[0] is Condition.PENDING


@pytest.mark.parametrize(
    ("code", "message", "condition"),
    [
        ("SkuNotAvailable", "not in zone 1", Condition.UNAVAILABLE),
        ("ZonalAllocationFailed", "", Condition.UNAVAILABLE),
        ("OverconstrainedZonalAllocationRequest", "", Condition.UNAVAILABLE),
        ("QuotaExceeded", "", Condition.UNAVAILABLE),
        (
            "OperationNotAllowed",
            "exceeding approved standardNDSH100v5Family Cores quota",
            Condition.UNAVAILABLE,
        ),
        ("SubnetIsFull", "", Condition.FAILED),
        ("VMExtensionProvisioningError", "", Condition.FAILED),
    ],
)
def test_a_failed_pool_shows_whether_another_placement_may_succeed(
    code: str, message: str, condition: Condition
) -> None:
    found, reason = condition_of(pool("Failed", code, message))
    assert found is condition
    assert code in reason


def test_a_failed_resource_without_details_has_failed() -> None:
    assert condition_of(pool("Failed")) == (Condition.FAILED, "its state is Failed")
    assert condition_of(pool("Canceled"))[0] is Condition.FAILED


def test_a_version_can_omit_the_patch_number() -> None:
    assert agrees("1.34.2", "1.34")
    assert agrees("1.34.2", "1.34.2")
    assert not agrees("1.34.2", "1.3")
    assert minor("1.9.1") < minor("1.10")
