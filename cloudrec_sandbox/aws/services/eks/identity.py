"""Pod identity: which role the pods of a service account get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services import iam
from cloudrec_sandbox.aws.services.eks import checks
from cloudrec_sandbox.aws.services.eks.state import (
    Cluster,
    arn,
    cluster_of,
    in_use,
    invalid_parameter,
    not_found,
    now,
    page,
    require_active,
    short_id,
)

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call

_SUMMARY = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId", "ownerArn")
_SYSTEM = "kube-system"


def associate(call: Call, cluster: Cluster, wishes: list[dict[str, str]], *, owner: str) -> list[str]:
    """Make an add-on's associations, all or none; return their ARNs."""
    for wish in wishes:
        _check(call, cluster, _SYSTEM, wish["serviceAccount"], wish["roleArn"])
    made = [
        _make(call, cluster, {"namespace": _SYSTEM, "ownerArn": owner, **wish})["associationArn"]
        for wish in wishes
    ]
    return list(made)


def release(cluster: Cluster, owner: str) -> None:
    """Remove an add-on's associations."""
    cluster.associations = {
        name: document for name, document in cluster.associations.items() if document.get("ownerArn") != owner
    }


def _check(call: Call, cluster: Cluster, namespace: str, account: str, role_arn: str) -> None:
    taken = {(entry["namespace"], entry["serviceAccount"]) for entry in cluster.associations.values()}
    # A service account has one role at most.
    if (namespace, account) in taken:
        raise in_use(f"Association already exists: {namespace}/{account}")
    check_role(call, role_arn)


def check_role(call: Call, role_arn: str) -> None:
    """Check that pods can get the role: it exists and trusts EKS's agent to assume it and tag the session."""
    role = iam.role_of(call.world, role_arn)
    if role is None:
        raise invalid_parameter(f"Role provided in the request does not exist: {role_arn}")
    # EKS user guide: pods' roles must trust pods.eks.amazonaws.com for both actions.
    for action in ("sts:AssumeRole", "sts:TagSession"):
        if not iam.trusts(role, "pods.eks.amazonaws.com", action=action):
            raise invalid_parameter(
                f"Trust policy of role {role_arn} does not allow pods.eks.amazonaws.com {action}"
            )


def _make(call: Call, cluster: Cluster, wish: dict[str, Any]) -> dict[str, Any]:
    name, uid = cluster.document["name"], short_id("a-")
    document = {
        "clusterName": name,
        "associationArn": arn(call, f"podidentityassociation/{name}/{uid}"),
        "associationId": uid,
        "tags": {},
        "createdAt": now(call.world),
        "modifiedAt": now(call.world),
        **wish,
    }
    cluster.associations[uid] = document
    return document


def _association(call: Call) -> tuple[Cluster, dict[str, Any]]:
    cluster, uid = cluster_of(call), call.params["associationId"]
    if uid not in cluster.associations:
        raise not_found(f"No pod identity association found for ID: {uid}")
    return cluster, cluster.associations[uid]


@operation("eks", "CreatePodIdentityAssociation")
def create_association(call: Call) -> dict[str, Any]:
    """Give a service account's pods a role; the account need not exist yet."""
    checks.shape(call)
    cluster, wish = cluster_of(call), call.params
    require_active(cluster)
    _check(call, cluster, wish["namespace"], wish["serviceAccount"], wish["roleArn"])
    hidden = ("clusterName", "clientRequestToken")
    return {"association": _make(call, cluster, {key: wish[key] for key in wish if key not in hidden})}


@operation("eks", "DescribePodIdentityAssociation")
def describe_association(call: Call) -> dict[str, Any]:
    """Return one association."""
    return {"association": _association(call)[1]}


@operation("eks", "ListPodIdentityAssociations")
def list_associations(call: Call) -> dict[str, Any]:
    """Return the associations of a namespace or a service account, or all."""
    found = [
        {key: entry[key] for key in _SUMMARY if key in entry}
        for entry in cluster_of(call).associations.values()
        if all(call.params.get(key) in (None, entry[key]) for key in ("namespace", "serviceAccount"))
    ]
    return page(call, "associations", found)


@operation("eks", "UpdatePodIdentityAssociation")
def update_association(call: Call) -> dict[str, Any]:
    """Change the role."""
    document = _association(call)[1]
    if "roleArn" in call.params:
        check_role(call, call.params["roleArn"])
    keys = ("roleArn", "disableSessionTags", "targetRoleArn", "policy")
    document.update({key: call.params[key] for key in keys if key in call.params})
    document["modifiedAt"] = now(call.world)
    return {"association": document}


@operation("eks", "DeletePodIdentityAssociation")
def delete_association(call: Call) -> dict[str, Any]:
    """Delete an association; new pods get no role."""
    cluster, document = _association(call)
    # The add-on would make it again, or lose its role without notice.
    if "ownerArn" in document:
        raise in_use(f"The association is owned by {document['ownerArn']}: delete or update that")
    del cluster.associations[document["associationId"]]
    return {"association": document}
