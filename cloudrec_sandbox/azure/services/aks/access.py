"""Kubeconfigs of a cluster."""

from __future__ import annotations

import base64
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.errors import ArmError, not_found
from cloudrec_sandbox.azure.arm.registry import route
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.identity import entra, tokens
from cloudrec_sandbox.azure.services.aks import nodes
from cloudrec_sandbox.azure.services.aks.pools import CLUSTER
from cloudrec_sandbox.core import linked
from cloudrec_sandbox.core.certificates import unused_authority

if TYPE_CHECKING:
    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.linked import Server

# The applications of AKS in every tenant: the API servers, and kubectl's.
_SERVER_APP, _CLIENT_APP = tokens.KUBERNETES, "80faf920-1908-4b52-b5ef-a8e7bedfc67a"


@route("POST", f"{CLUSTER}/listClusterUserCredential")
def user(call: Call) -> dict[str, Any]:
    """Return the users' kubeconfig: through Entra if the cluster uses it."""
    cluster = _cluster(call)
    if cluster.properties.get("aadProfile"):
        return _kubeconfig(
            "clusterUser", cluster, _by_entra(call.query.get("format", "")), linked.of(call.world, cluster.id)
        )
    _refuse_static(cluster)
    return _kubeconfig("clusterUser", cluster, _static(cluster), linked.of(call.world, cluster.id))


@route("POST", f"{CLUSTER}/listClusterAdminCredential")
def admin(call: Call) -> dict[str, Any]:
    """Return the administrator's kubeconfig, which does not use Entra."""
    cluster = _cluster(call)
    _refuse_static(cluster)
    return _kubeconfig("clusterAdmin", cluster, _static(cluster), linked.of(call.world, cluster.id))


def _cluster(call: Call) -> Resource:
    id_ = call.path.text.rpartition("/")[0]
    found = store(call.world).find(id_)
    if found is None:
        raise not_found(id_, CLUSTER, call.path.group)
    if not (found.properties.get("fqdn") or found.properties.get("privateFQDN")):
        raise ArmError(
            "OperationNotAllowed",
            f"The cluster {found.name} is in state {found.properties['provisioningState']}: it has no "
            f"address yet.",
            status=HTTPStatus.CONFLICT,
        )
    return found


def _refuse_static(cluster: Resource) -> None:
    if cluster.properties.get("disableLocalAccounts"):
        raise ArmError(
            "BadRequest",
            "Getting static credential is not allowed because this cluster is set to disable local accounts.",
        )


def _by_entra(format_: str) -> dict[str, Any]:
    if format_ == "exec":
        words = ["get-token", "--environment", "AzurePublicCloud", "--server-id", _SERVER_APP]
        words += ["--client-id", _CLIENT_APP, "--tenant-id", entra.TENANT, "--login", "devicecode"]
        program = {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "kubelogin",
            "args": words,
            "env": None,
            "provideClusterInfo": False,
        }
        return {"exec": program}
    config = {
        "apiserver-id": _SERVER_APP,
        "client-id": _CLIENT_APP,
        "config-mode": "1",
        "environment": "AzurePublicCloud",
        "tenant-id": entra.TENANT,
    }
    return {"auth-provider": {"name": "azure", "config": config}}


def _static(cluster: Resource) -> dict[str, Any]:
    return {"token": nodes.local_token(cluster)}


def _kubeconfig(
    name: str, cluster: Resource, credential: dict[str, Any], link: Server | None
) -> dict[str, Any]:
    properties = cluster.properties
    host = properties.get("privateFQDN") or properties["fqdn"]
    who = f"{name}_{cluster.path.group}_{cluster.name}"
    authority = base64.b64encode(unused_authority().encode()).decode()
    server = f"https://{host}:443"
    if link is not None:
        authority, server = link.authority_data, link.server
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster.name,
                "cluster": {"certificate-authority-data": authority, "server": server},
            }
        ],
        "contexts": [{"name": cluster.name, "context": {"cluster": cluster.name, "user": who}}],
        "current-context": cluster.name,
        "preferences": {},
        "users": [{"name": who, "user": credential}],
    }
    value = base64.b64encode(json.dumps(config).encode()).decode()  # every JSON document is YAML
    return {"kubeconfigs": [{"name": name, "value": value}]}
