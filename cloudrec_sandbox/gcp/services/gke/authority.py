"""What IAM allows a caller in a cluster: permissions `container.NOUN.VERB` as rules of RBAC.

GKE looks for a rule of RBAC first, and then for a permission of IAM ("Authorize actions in clusters using
role-based access control", GKE's documentation). The nouns and verbs are those of "Kubernetes Engine roles
and permissions" in IAM's reference; kinds from definitions are `container.thirdPartyObjects`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from cloudrec_sandbox.gcp.services.iam import policies, roles

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.world import World
    from cloudrec_sandbox.gcp.services.gke.state import ClusterState

Rule = Mapping[str, object]

_NOUNS: dict[str, str] = {
    "": (
        "bindings configMaps endpoints events limitRanges namespaces nodes persistentVolumeClaims"
        " persistentVolumes pods podTemplates replicationControllers resourceQuotas secrets serviceAccounts"
        " services"
    ),
    "admissionregistration.k8s.io": "mutatingWebhookConfigurations validatingWebhookConfigurations",
    "apiextensions.k8s.io": "customResourceDefinitions",
    "apiregistration.k8s.io": "apiServices",
    "apps": "controllerRevisions daemonSets deployments replicaSets statefulSets",
    "authentication.k8s.io": "tokenReviews",
    "authorization.k8s.io": "selfSubjectAccessReviews selfSubjectRulesReviews subjectAccessReviews",
    "autoscaling": "horizontalPodAutoscalers",
    "batch": "cronJobs jobs",
    "coordination.k8s.io": "leases",
    "discovery.k8s.io": "endpointSlices",
    "events.k8s.io": "events",
    "networking.k8s.io": "ingresses networkPolicies",
    "node.k8s.io": "runtimeClasses",
    "policy": "podDisruptionBudgets",
    "rbac.authorization.k8s.io": "clusterRoleBindings clusterRoles roleBindings roles",
    "resource.k8s.io": "deviceClasses resourceClaims resourceClaimTemplates resourceSlices",
    "scheduling.k8s.io": "priorityClasses",
    "storage.k8s.io": "csiDrivers csiNodes storageClasses volumeAttachments",
}
# IAM has no permission to watch or to patch: reading lists and updating include them.
_VERBS: dict[str, tuple[str, ...]] = {
    "create": ("create",),
    "delete": ("delete", "deletecollection"),
    "get": ("get",),
    "list": ("list", "watch"),
    "update": ("patch", "update"),
    "bind": ("bind",),
    "escalate": ("escalate",),
}
# The permissions of subresources, with the subresource and its verbs.
_BELOW: dict[str, tuple[str, tuple[str, ...]]] = {
    "getLogs": ("log", ("get",)),
    "evict": ("eviction", ("create",)),
    "exec": ("exec", ("create", "get")),
    "portForward": ("portforward", ("create", "get")),
    "getStatus": ("status", ("get",)),
    "updateStatus": ("status", ("patch", "update")),
    "getScale": ("scale", ("get",)),
    "updateScale": ("scale", ("patch", "update")),
    "createToken": ("token", ("create",)),
    "proxy": ("proxy", ("create", "get")),
}
_CUSTOM = "thirdPartyObjects"  # kinds from definitions, and the built-in ones that have no noun
# IAM's reference names no permission for these; that `thirdPartyObjects` includes them is not verified.
_NOUNLESS = {
    "admissionregistration.k8s.io": "validatingadmissionpolicies validatingadmissionpolicybindings",
    "networking.k8s.io": "ingressclasses",
}


def rules(world: World, cluster: ClusterState, caller: str) -> list[Rule]:
    """Return the rules of a caller, a service account's address, in a cluster."""
    granted = policies.roles_of(
        world,
        f"projects/{cluster.project}",
        f"serviceAccount:{caller}",
        name=cluster.path,
        kind="container.googleapis.com/Cluster",
    )
    patterns = tuple(sorted({each for role in granted for each in roles.permissions(world, role)}))
    return list(_rules(patterns))


@lru_cache(maxsize=16)
def _rules(patterns: tuple[str, ...]) -> tuple[Rule, ...]:
    found = [
        rule
        for group, nouns in _NOUNS.items()
        for noun in nouns.split()
        for rule in _of(patterns, group, noun)
    ]
    verbs = _allowed(patterns, _CUSTOM)
    custom: Rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs, "custom": True}
    nounless: list[Rule] = [
        {"apiGroups": [group], "resources": plurals.split(), "verbs": verbs}
        for group, plurals in _NOUNLESS.items()
    ]
    return (*found, *([custom, *nounless] if verbs else []))


def _of(patterns: tuple[str, ...], group: str, noun: str) -> list[Rule]:
    plural, verbs = noun.lower(), _allowed(patterns, noun)
    found: list[Rule] = []
    if verbs:
        found.append({"apiGroups": [group], "resources": [plural], "verbs": verbs})
    for permission, (below, below_verbs) in _BELOW.items():
        if _has(patterns, f"container.{noun}.{permission}"):
            found.append(
                {"apiGroups": [group], "resources": [f"{plural}/{below}"], "verbs": list(below_verbs)}
            )
    return found


def _allowed(patterns: tuple[str, ...], noun: str) -> list[str]:
    """Return the verbs of RBAC that the permissions of a noun include."""
    return [
        verb
        for permission, verbs in _VERBS.items()
        if _has(patterns, f"container.{noun}.{permission}")
        for verb in verbs
    ]


def _has(patterns: tuple[str, ...], permission: str) -> bool:
    return any(fnmatch.fnmatchcase(permission, pattern) for pattern in patterns)
