"""Clusters: created and deleted in minutes, one update at a time."""

from __future__ import annotations

import base64
import secrets
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services import iam
from cloudrec_sandbox.aws.services.eks import access, checks, linked, network
from cloudrec_sandbox.aws.services.eks.state import (
    Cluster,
    Eks,
    Where,
    arn,
    cluster_of,
    eks_of,
    find,
    in_use,
    invalid_parameter,
    invalid_request,
    new_uid,
    now,
    page,
    same_request,
    where,
)
from cloudrec_sandbox.core.certificates import unused_authority

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

_SERVICE_ROLE = "AWSServiceRoleForAmazonEKS"
_LOG_TYPES = ["api", "audit", "authenticator", "controllerManager", "scheduler"]


@operation("eks", "CreateCluster")
def create_cluster(call: Call) -> dict[str, Any]:
    """Make the checks that EKS makes at once; the rest takes minutes."""
    eks, name = eks_of(call), call.params["name"]
    checks.shape(call)
    before = eks.clusters.get(name)
    if before and same_request(call, before.parameters):
        return {"cluster": _shown(before)}
    # A deleted cluster's name stays taken for a while.
    if before or eks.taken.get(name, 0.0) > call.world.now():
        raise in_use(f"Cluster already exists with name: {name}", clusterName=name)
    version = checks.version(call)
    _require_service_role(call)
    checks.cluster_role(call, call.params["roleArn"])
    subnets = checks.network(call, call.params["resourcesVpcConfig"])
    checks.encryption(call, call.params.get("encryptionConfig", []))
    cluster = Cluster(
        document=_document(call, version, subnets[0].vpc_id), uid=new_uid(), parameters=deepcopy(call.params)
    )
    network.furnish(call.world, call.region, cluster, subnets)
    eks.clusters[name] = cluster
    if call.params.get("accessConfig", {}).get("bootstrapClusterCreatorAdminPermissions", True):
        access.admit_creator(call, cluster)
    call.world.after(call.world.duration("eks-cluster-create"), _become_active, where(call, cluster))
    return {"cluster": _shown(cluster)}


def _require_service_role(call: Call) -> None:
    """Make EKS's service-linked role at the first use; it works some seconds later."""
    eks, world = eks_of(call), call.world
    if eks.service_role_from is None:
        iam.service_role(world, "eks.amazonaws.com", _SERVICE_ROLE)
        eks.service_role_from = world.now() + world.duration("eks-service-role")
    if world.now() < eks.service_role_from:
        raise invalid_parameter(f"The service-linked role {_SERVICE_ROLE} could not be assumed by Amazon EKS")


def _document(call: Call, version: str, vpc_id: str) -> dict[str, Any]:
    wish, name = call.params, call.params["name"]
    config, access_config = wish["resourcesVpcConfig"], wish.get("accessConfig", {})
    kubernetes = linked.server_of(call.world, call.region, name)
    host = f"{secrets.token_hex(16).upper()}.gr7.{call.region}.eks.amazonaws.com"
    authority = base64.b64encode(unused_authority().encode()).decode()
    return {
        "name": name,
        "arn": arn(call, f"cluster/{name}"),
        "createdAt": now(call.world),
        "version": version,
        "endpoint": kubernetes.get("endpoint", f"https://{host}"),
        "certificateAuthority": {"data": kubernetes.get("certificate_authority", authority)},
        "roleArn": wish["roleArn"],
        "resourcesVpcConfig": {
            "subnetIds": list(config["subnetIds"]),
            "securityGroupIds": list(config.get("securityGroupIds", [])),
            "vpcId": vpc_id,
            "endpointPublicAccess": config.get("endpointPublicAccess", True),
            "endpointPrivateAccess": config.get("endpointPrivateAccess", False),
            "publicAccessCidrs": list(config.get("publicAccessCidrs", ["0.0.0.0/0"])),
        },
        "kubernetesNetworkConfig": {
            "serviceIpv4Cidr": wish.get("kubernetesNetworkConfig", {}).get(
                "serviceIpv4Cidr", "172.20.0.0/16"
            ),
            "ipFamily": "ipv4",
        },
        "logging": {"clusterLogging": logging_of(wish.get("logging"))},
        "identity": {
            "oidc": {"issuer": f"https://oidc.eks.{call.region}.amazonaws.com/id/{host.partition('.')[0]}"}
        },
        "status": "CREATING",
        "platformVersion": "eks.9",
        "tags": dict(wish.get("tags", {})),
        "encryptionConfig": deepcopy(wish.get("encryptionConfig", [])),
        "health": {"issues": []},
        "accessConfig": {
            # botocore's model: without a mode it is CONFIG_MAP; only the console sets another.
            "authenticationMode": access_config.get("authenticationMode", "CONFIG_MAP"),
            "bootstrapClusterCreatorAdminPermissions": access_config.get(
                "bootstrapClusterCreatorAdminPermissions", True
            ),
        },
        "upgradePolicy": {"supportType": wish.get("upgradePolicy", {}).get("supportType", "EXTENDED")},
        "deletionProtection": wish.get("deletionProtection", False),
    }


def logging_of(wish: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the kinds of log that are on and off."""
    on = [
        kind
        for entry in (wish or {}).get("clusterLogging", [])
        if entry.get("enabled")
        for kind in entry["types"]
    ]
    off = [kind for kind in _LOG_TYPES if kind not in on]
    return [{"types": kinds, "enabled": enabled} for kinds, enabled in ((on, True), (off, False)) if kinds]


def _shown(cluster: Cluster) -> dict[str, Any]:
    """Return the cluster as DescribeCluster shows it: no endpoint before it has one."""
    hidden = (
        ("endpoint", "certificateAuthority", "identity") if cluster.document["status"] == "CREATING" else ()
    )
    return {name: value for name, value in cluster.document.items() if name not in hidden}


def _become_active(world: World, place: Where) -> None:
    cluster = find(world, place)
    if cluster and cluster.document["status"] == "CREATING":
        cluster.document["status"] = "ACTIVE"
        make_log_group(world, place.region, cluster)


def make_log_group(world: World, region: str, cluster: Cluster) -> None:
    """Make the log group, as EKS does when it has something to log; EKS never deletes it."""
    name = f"/aws/eks/{cluster.document['name']}/cluster"
    logs = world.backend("logs", region)
    if (
        any(entry["enabled"] for entry in cluster.document["logging"]["clusterLogging"])
        and name not in logs.groups
    ):
        logs.create_log_group(name, {})


@operation("eks", "DescribeCluster")
def describe_cluster(call: Call) -> dict[str, Any]:
    """Return one cluster."""
    return {"cluster": _shown(cluster_of(call, "name"))}


@operation("eks", "ListClusters")
def list_clusters(call: Call) -> dict[str, Any]:
    """Return the names of all clusters."""
    return page(call, "clusters", sorted(eks_of(call).clusters))


@operation("eks", "DeleteCluster")
def delete_cluster(call: Call) -> dict[str, Any]:
    """Delete a cluster in minutes, with its add-ons; refused while node groups need it."""
    cluster = cluster_of(call, "name")
    name, document = call.params["name"], cluster.document
    if cluster.nodegroups:
        raise in_use(
            "Cluster has nodegroups attached", clusterName=name, nodegroupName=",".join(cluster.nodegroups)
        )
    # EKS runs one operation of a cluster at a time.
    if document["status"] == "CREATING" or cluster.is_updating:
        raise in_use(
            f"Cannot delete because cluster {name} currently has an update in progress", clusterName=name
        )
    if document["deletionProtection"]:
        raise invalid_request(f"Cluster {name} has deletion protection enabled", clusterName=name)
    if document["status"] != "DELETING":
        document["status"] = "DELETING"
        call.world.after(call.world.duration("eks-cluster-delete"), _vanish, where(call, cluster))
    return {"cluster": _shown(cluster)}


def _vanish(world: World, place: Where) -> None:
    cluster = find(world, place)
    if cluster:
        network.clear(world, place.region, cluster)
        eks = world.state(Eks, place.region)
        del eks.clusters[place.name]
        eks.taken[place.name] = world.now() + world.duration("eks-cluster-name-reuse")
