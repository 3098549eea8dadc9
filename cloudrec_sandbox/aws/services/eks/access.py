"""Access entries and their policies: which principals may call a cluster's API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services import iam
from cloudrec_sandbox.aws.services.eks.checks import shape
from cloudrec_sandbox.aws.services.eks.state import (
    AccessEntry,
    Cluster,
    arn,
    cluster_of,
    in_use,
    invalid_parameter,
    invalid_request,
    new_uid,
    not_found,
    now,
    page,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call

_POLICY = "arn:aws:eks::aws:cluster-access-policy/"
_POLICIES = (
    "AmazonEKSAdminPolicy",
    "AmazonEKSAdminViewPolicy",
    "AmazonEKSClusterAdminPolicy",
    "AmazonEKSEditPolicy",
    "AmazonEKSViewPolicy",
)
_TYPES = ("STANDARD", "FARGATE_LINUX", "EC2_LINUX", "EC2_WINDOWS", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
_NODE_GROUPS = {"EC2_LINUX": ["system:nodes"]}


def admit(call: Call, cluster: Cluster, principal: str, kind: str) -> AccessEntry:
    """Add an entry."""
    name = cluster.document["name"]
    moment = now(call.world)
    # Nodes are named by their instance, which EKS fills in at each login.
    user = principal if kind == "STANDARD" else "system:node:{{EC2PrivateDNSName}}"
    entry = AccessEntry(
        {
            "clusterName": name,
            "principalArn": principal,
            "kubernetesGroups": _NODE_GROUPS.get(kind, []),
            "accessEntryArn": arn(call, f"access-entry/{name}/{principal.partition('::')[2]}/{new_uid()}"),
            "createdAt": moment,
            "modifiedAt": moment,
            "tags": {},
            "username": user,
            "type": kind,
        }
    )
    cluster.entries[principal] = entry
    return entry


def admit_creator(call: Call, cluster: Cluster) -> None:
    """Add an entry for the cluster's creator, as EKS does."""
    entry = admit(call, cluster, iam.caller(call), "STANDARD")
    _associate(call, entry, f"{_POLICY}AmazonEKSClusterAdminPolicy", {"type": "cluster", "namespaces": []})


def _cluster(call: Call) -> Cluster:
    shape(call)
    cluster = cluster_of(call)
    # In the mode CONFIG_MAP, the API's default, there are no access entries, only the ConfigMap aws-auth.
    if cluster.document["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
        raise invalid_request(
            "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform"
            " this operation."
        )
    return cluster


def _entry(call: Call) -> AccessEntry:
    cluster, principal = _cluster(call), call.params["principalArn"]
    if principal not in cluster.entries:
        raise not_found(
            f"The specified principalArn could not be found. You can view your existing access entries with"
            f" 'aws eks list-access-entries --cluster-name {cluster.document['name']}'."
        )
    return cluster.entries[principal]


def _associate(call: Call, entry: AccessEntry, policy: str, scope: dict[str, Any]) -> dict[str, Any]:
    moment = now(call.world)
    made = entry.policies.get(policy, {}).get("associatedAt", moment)
    entry.policies[policy] = {
        "policyArn": policy,
        "accessScope": {"namespaces": [], **scope},
        "associatedAt": made,
        "modifiedAt": moment,
    }
    return entry.policies[policy]


@operation("eks", "CreateAccessEntry")
def create_access_entry(call: Call) -> dict[str, Any]:
    """Add an entry for a role or a user."""
    cluster, principal = _cluster(call), call.params["principalArn"]
    kind = call.params.get("type", "STANDARD")
    if principal in cluster.entries:
        raise in_use("The specified access entry resource is already in use on this cluster.")
    if kind not in _TYPES:
        raise invalid_parameter(f"The specified type {kind} is invalid")
    if not iam.is_principal(call.world, principal):
        raise invalid_parameter("The specified principalArn is invalid: invalid principal.")
    # botocore's model says so of EC2_LINUX and EC2_WINDOWS: nodes' groups are fixed.
    if kind != "STANDARD" and (call.params.get("kubernetesGroups") or call.params.get("username")):
        raise invalid_parameter(f"An access entry of type {kind} takes no kubernetesGroups or username")
    # Groups with this prefix are Kubernetes' own: an entry could make itself an administrator.
    if bad := [name for name in call.params.get("kubernetesGroups", []) if name.startswith("system:")]:
        raise invalid_parameter(
            f"The kubernetes group name {bad[0]} is invalid, it cannot start with system:"
        )
    entry = admit(call, cluster, principal, kind)
    for key in ("kubernetesGroups", "username", "tags"):
        if key in call.params:
            entry.document[key] = call.params[key]
    return {"accessEntry": entry.document}


@operation("eks", "DescribeAccessEntry")
def describe_access_entry(call: Call) -> dict[str, Any]:
    """Return one entry."""
    return {"accessEntry": _entry(call).document}


@operation("eks", "UpdateAccessEntry")
def update_access_entry(call: Call) -> dict[str, Any]:
    """Change an entry's groups or user name."""
    entry = _entry(call)
    for key in ("kubernetesGroups", "username"):
        if key in call.params:
            entry.document[key] = call.params[key]
    entry.document["modifiedAt"] = now(call.world)
    return {"accessEntry": entry.document}


@operation("eks", "DeleteAccessEntry")
def delete_access_entry(call: Call) -> dict[str, Any]:
    """Delete an entry: its principal can no longer enter."""
    del _cluster(call).entries[_entry(call).document["principalArn"]]
    return {}


@operation("eks", "ListAccessEntries")
def list_access_entries(call: Call) -> dict[str, Any]:
    """Return all principals, or those with one policy."""
    policy = call.params.get("associatedPolicyArn")
    entries = _cluster(call).entries.items()
    return page(
        call, "accessEntries", [name for name, entry in entries if not policy or policy in entry.policies]
    )


@operation("eks", "AssociateAccessPolicy")
def associate_access_policy(call: Call) -> dict[str, Any]:
    """Give an entry a policy."""
    entry, policy = _entry(call), call.params["policyArn"]
    if policy.removeprefix(_POLICY) not in _POLICIES:
        raise invalid_parameter(f"The policyArn parameter format is not valid: {policy}")
    if entry.document["type"] not in ("STANDARD", "EC2"):
        raise invalid_parameter(f"An access entry of type {entry.document['type']} takes no access policies")
    scope = call.params["accessScope"]
    if (scope.get("type") == "namespace") != bool(scope.get("namespaces")):
        raise invalid_parameter("namespaces go with an access scope of type namespace, and only with it")
    associated = _associate(call, entry, policy, scope)
    return {
        "clusterName": call.params["clusterName"],
        "principalArn": call.params["principalArn"],
        "associatedAccessPolicy": associated,
    }


@operation("eks", "DisassociateAccessPolicy")
def disassociate_access_policy(call: Call) -> dict[str, Any]:
    """Take a policy from an entry."""
    if _entry(call).policies.pop(call.params["policyArn"], None) is None:
        raise not_found("The specified policyArn is not associated with the principalArn.")
    return {}


@operation("eks", "ListAssociatedAccessPolicies")
def list_associated_access_policies(call: Call) -> dict[str, Any]:
    """Return an entry's policies."""
    policies = list(_entry(call).policies.values())
    names = {name: call.params[name] for name in ("clusterName", "principalArn")}
    return names | page(call, "associatedAccessPolicies", policies)


@operation("eks", "ListAccessPolicies")
def list_access_policies(call: Call) -> dict[str, Any]:
    """Return all policies that EKS has."""
    return page(call, "accessPolicies", [{"name": name, "arn": f"{_POLICY}{name}"} for name in _POLICIES])
