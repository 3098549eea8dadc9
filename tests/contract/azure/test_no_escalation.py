"""No identity of a cluster reaches more permissions than it was given.

The paths give credentials, code that runs as another identity, or roles; their actions have the names of
Microsoft's reference (azure-docs, articles/role-based-access-control/permissions/*.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec.providers.azure.identity.roles import POWERFUL, ROLES
from tests.contract.azure.support_deployer import GROUP, OBJECT
from tests.contract.azure.support_identities import Attempt, Estate

_ROLES = "Microsoft.Authorization/roleAssignments"
_NEW = "11111111-2222-4333-8444-555555555555"
_COMPUTE, _AKS = "Microsoft.Compute", "Microsoft.ContainerService/managedClusters"
_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"
OF_THE_TENANT = "all subscriptions of the tenant"  # no role in a subscription opens that
LAB = "lab-eastus"  # a group of others


def _grant(estate: Estate, scope: str, role: str) -> Attempt:
    properties = {
        "roleDefinitionId": f"{estate.subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}",
        "principalId": OBJECT,
        "principalType": "ServicePrincipal",
    }
    path = f"{scope}/providers/{_ROLES}/{_NEW}"
    return Attempt(action=f"{_ROLES}/write", method="PUT", path=path, body={"properties": properties})


def _foreign(estate: Estate) -> dict[str, Attempt]:
    """What leads out of the deployer's group, by its description."""

    def post(what: str, of_type: str, *names: str, group: str = LAB) -> Attempt:
        path = f"{estate.id(of_type, *names, group=group)}/{what}"
        return Attempt(action=f"{of_type}/{what}/action", method="POST", path=path)

    def put(of_type: str, *names: str, group: str = LAB, body: Any = None) -> Attempt:
        path = estate.id(of_type, *names, group=group)
        return Attempt(action=f"{of_type}/write", method="PUT", path=path, body=body or {})

    of_all, group = estate.subscription, f"{estate.subscription}/resourceGroups/{LAB}"
    account = estate.id("Microsoft.Storage/storageAccounts", "plantedu", group=LAB)
    federated = f"{_IDENTITY}/federatedIdentityCredentials"
    return {
        "Owner in the subscription": _grant(estate, of_all, POWERFUL["Owner"]),
        "Owner in the deployer's group": _grant(estate, estate.deployer.group, POWERFUL["Owner"]),
        "Contributor in a foreign group": _grant(estate, group, POWERFUL["Contributor"]),
        "the data of a foreign account": _grant(estate, account, ROLES["Storage Blob Data Contributor"]),
        "a foreign role assignment's end": Attempt(
            action=f"{_ROLES}/delete", method="DELETE", path=f"{of_all}/providers/{_ROLES}/{_NEW}"
        ),
        "a wider definition of a role": Attempt(
            action="Microsoft.Authorization/roleDefinitions/write",
            method="PUT",
            path=f"{of_all}/providers/Microsoft.Authorization/roleDefinitions/{_NEW}",
            body={"properties": {"roleName": "all", "permissions": [{"actions": ["*"]}],
                                 "assignableScopes": [of_all]}},
        ),
        OF_THE_TENANT: Attempt(
            action="Microsoft.Authorization/elevateAccess/action",
            method="POST",
            path="/providers/Microsoft.Authorization/elevateAccess",
        ),
        "a policy that deploys": Attempt(
            action="Microsoft.Authorization/policyAssignments/write",
            method="PUT",
            path=f"{of_all}/providers/Microsoft.Authorization/policyAssignments/x",
        ),
        "a lock's end": Attempt(
            action="Microsoft.Authorization/locks/delete",
            method="DELETE",
            path=f"{group}/providers/Microsoft.Authorization/locks/x",
        ),
        "a command on a foreign machine": post("runCommand", f"{_COMPUTE}/virtualMachines", "machine"),
        "a command on a foreign scale set": post(
            "runCommand", f"{_COMPUTE}/virtualMachineScaleSets/virtualMachines", "machines", "0"
        ),
        "an extension of a foreign machine": put(f"{_COMPUTE}/virtualMachines/extensions", "machine", "x"),
        "a machine with a foreign identity": put(f"{_COMPUTE}/virtualMachines", "x", group=GROUP),
        "a container with a foreign identity": put(
            "Microsoft.ContainerInstance/containerGroups", "x", group=GROUP
        ),
        "a script with a foreign identity": put("Microsoft.Resources/deploymentScripts", "x", group=GROUP),
        "a deployment in a foreign group": put("Microsoft.Resources/deployments", "x"),
        "a runbook of a foreign account": put(
            "Microsoft.Automation/automationAccounts/runbooks", "theirs", "x"
        ),
        "a foreign site's settings": post("list", "Microsoft.Web/sites/config", "theirs", "appsettings"),
        "a federated credential of a foreign identity": put(federated, "identity", "x"),
        "a workflow that calls as a foreign identity": Attempt(
            action=f"{_IDENTITY}/assign/action",
            method="PUT",
            path=estate.id("Microsoft.Logic/workflows", "x", group=GROUP),
            body={"location": "eastus", "properties": {}, "identity": {
                "type": "UserAssigned",
                "userAssignedIdentities": {estate.id(_IDENTITY, "identity", group=LAB): {}}}},
        ),
        "a foreign account's keys": post("listKeys", "Microsoft.Storage/storageAccounts", "plantedu"),
        "a foreign account's signature": post(
            "listAccountSas", "Microsoft.Storage/storageAccounts", "plantedu"
        ),
        "a foreign registry's password": post(
            "listCredentials", "Microsoft.ContainerRegistry/registries", "plantedu"
        ),
        "a foreign vault's policy": put("Microsoft.KeyVault/vaults/accessPolicies", "theirs", "add"),
        "a foreign disk's content": post("beginGetAccess", f"{_COMPUTE}/disks", "disk", group="cloudrec-u"),
        "a copy of a foreign disk": put(f"{_COMPUTE}/snapshots", "x", group=GROUP),
        "a foreign cluster's administrator": post(
            "listClusterAdminCredential", _AKS, "cloudrec-u", group="cloudrec-u"
        ),
        "a foreign cluster's user": post(
            "listClusterUserCredential", _AKS, "cloudrec-u", group="cloudrec-u"
        ),
        "a command in a foreign cluster": post("runCommand", _AKS, "cloudrec-u", group="cloudrec-u"),
        "a foreign workflow's calls": put("Microsoft.Logic/workflows", "cloudrec-u", group="cloudrec-u"),
    }  # fmt: skip


def _own(estate: Estate) -> dict[str, Attempt]:
    """What gives an identity that is not the deployer more of the deployer's cluster."""
    cluster = estate.id(_AKS, GROUP, group=GROUP)
    federated = estate.id(f"{_IDENTITY}/federatedIdentityCredentials", f"{GROUP}-cluster", "x", group=GROUP)
    account = estate.id("Microsoft.Storage/storageAccounts", estate.accounts[GROUP], group=GROUP)
    return {
        "a role in the group": _grant(estate, estate.deployer.group, ROLES["Network Contributor"]),
        "a role on the cluster": _grant(
            estate, cluster, ROLES["Azure Kubernetes Service RBAC Cluster Admin"]
        ),
        "a federated credential": Attempt(
            action=f"{_IDENTITY}/federatedIdentityCredentials/write", method="PUT", path=federated
        ),
        "the account's keys": Attempt(action="listKeys", method="POST", path=f"{account}/listKeys"),
        "the account's rules": Attempt(action="write", method="PATCH", path=account),
        "the workflow": Attempt(
            action="write", method="PUT", path=estate.id("Microsoft.Logic/workflows", GROUP, group=GROUP)
        ),
        "the cluster's administrator": Attempt(
            action="action", method="POST", path=f"{cluster}/listClusterAdminCredential"
        ),
        "a command in the cluster": Attempt(action="action", method="POST", path=f"{cluster}/runCommand"),
        "another version of the cluster": Attempt(action="write", method="PUT", path=cluster),
        "another pool": Attempt(action="write", method="PUT", path=f"{cluster}/agentPools/x"),
    }


# The workflow's identity stops pools by a role on the cluster, for which Azure has no smaller one. No pod and
# no node has that identity, and the cluster has no local accounts.
OF_THE_END = {
    "the cluster's administrator",
    "a command in the cluster",
    "another version of the cluster",
    "another pool",
}


def test_no_identity_leaves_the_group_or_gets_other_roles(estate: Estate) -> None:
    paths = _foreign(estate)
    opened = [
        (who, what)
        for who, identity in estate.identities.items()
        for what, each in paths.items()
        if identity.may(each)
    ]
    assert opened == []
    print(f"0 of {len(paths)} paths are open to {len(estate.identities)} identities")


def test_no_identity_but_the_deployer_gets_more_of_the_cluster(estate: Estate) -> None:
    opened = {
        (who, what)
        for who, identity in estate.identities.items()
        for what, each in _own(estate).items()
        if who != "deployer" and identity.may(each)
    }
    assert opened == {("end", what) for what in OF_THE_END}


def test_each_path_opens_with_the_action_that_it_needs(estate: Estate) -> None:
    paths = _foreign(estate)
    estate.azure.ask("POST", "/save", {"name": "before"})
    del paths[OF_THE_TENANT]
    for what, each in paths.items():
        estate.deployer.grant(each.action)
        assert estate.identities["deployer"].may(each), what
        estate.azure.ask("POST", "/restore", {"name": "before"})
        assert not estate.identities["deployer"].may(each), what


@pytest.mark.parametrize("suffix", ["guard", "pod", "kubelet"])
def test_a_role_of_a_pods_identity_on_the_cluster_is_found(estate: Estate, suffix: str) -> None:
    estate.azure.ask("POST", "/save", {"name": "before"})
    principal = estate.principals[suffix]
    contributor = ROLES["Azure Kubernetes Service Contributor Role"]
    estate.deployer.assign(estate.id(_AKS, GROUP, group=GROUP), contributor, principal)
    estate.azure.advance(3600)
    assert estate.identities[suffix].may(_own(estate)["a command in the cluster"])
    estate.azure.ask("POST", "/restore", {"name": "before"})
