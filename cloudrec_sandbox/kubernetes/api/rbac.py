"""RBAC: which user may do what, by roles and bindings; no user can grant what it does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.core.book import Decisions
from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.storage.access import AUTHENTICATED, MASTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.kubernetes.api.call import Call
    from cloudrec_sandbox.kubernetes.storage.access import User
    from cloudrec_sandbox.kubernetes.storage.store import Store

GROUP = "rbac.authorization.k8s.io"
_READ, _ALL = ["get", "list", "watch"], ["*"]
_WORK = [
    {
        "apiGroups": [""],
        "resources": [
            "pods",
            "pods/log",
            "pods/eviction",
            "services",
            "configmaps",
            "endpoints",
            "events",
            "persistentvolumeclaims",
            "serviceaccounts",
        ],
    },
    {"apiGroups": ["apps", "batch", "autoscaling", "policy", "networking.k8s.io"], "resources": _ALL},
]
# As in kube-apiserver: edit and admin may enter containers, view may not.
_ENTER = {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": _ALL}
_SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": _ALL}
_ROLES = {
    "cluster-admin": [
        {"apiGroups": _ALL, "resources": _ALL, "verbs": _ALL},
        {"nonResourceURLs": _ALL, "verbs": _ALL},
    ],
    "view": [{**rule, "verbs": _READ} for rule in _WORK],
    "edit": [*({**rule, "verbs": _ALL} for rule in _WORK), _ENTER, _SECRETS],
    "admin": [
        *({**rule, "verbs": _ALL} for rule in _WORK),
        _ENTER,
        _SECRETS,
        {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": _ALL},
    ],
    "system:basic-user": [
        {
            "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"],
            "verbs": ["create"],
        }
    ],
}
_BINDINGS = {"cluster-admin": MASTERS, "system:basic-user": AUTHENTICATED}


@dataclass(frozen=True, kw_only=True)
class Deed:
    """An action of a user: verb, resource, namespace, name."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    def is_within(self, rule: Mapping[str, Any]) -> bool:
        """Return whether a rule of a role allows it."""
        kind, _, below = self.resource.partition("/")
        # As in kube-apiserver: "pods" does not cover "pods/log"; "*" covers both, "*/log" only logs.
        names = ("*", self.resource, *((f"*/{below}",) if below else (kind,)))
        # Groups of built-in kinds have no dot, or end in this.
        is_custom = "." in self.group and not self.group.endswith(".k8s.io")
        return (
            (is_custom or not rule.get("custom"))
            and _has(rule.get("verbs"), "*", self.verb)
            and _has(rule.get("apiGroups"), "*", self.group)
            and _has(rule.get("resources"), *names)
            # PolicyRule in the API model: an empty list of names allows every name.
            and (not rule.get("resourceNames") or self.name in rule["resourceNames"])
        )


def _has(granted: list[str] | None, *wanted: str) -> bool:
    return any(each in wanted for each in granted or ())


def furnish(store: Store) -> None:
    """Make the roles and bindings that every cluster has."""
    for name, rules in _ROLES.items():
        store.create("clusterroles", {"metadata": {"name": name}, "rules": rules})
    for name, group in _BINDINGS.items():
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        subjects = [{"apiGroup": GROUP, "kind": "Group", "name": group}]
        store.create(
            "clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
        )


def rules_of(store: Store, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield all rules of a user, in a namespace or (empty) in the whole cluster."""
    bindings = store.table.all("clusterrolebindings")
    if namespace:
        bindings = [*bindings, *store.table.all("rolebindings", namespace)]
    for entry in bindings:
        if any(_is_meant(each, user) for each in entry.obj.get("subjects") or ()):
            yield from role_rules(store, entry.obj["roleRef"], entry.obj["metadata"].get("namespace", ""))


def role_rules(store: Store, reference: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]]:
    """Return the rules of the role that a binding names."""
    if reference["kind"] == "Role":
        role = store.table.get("roles", (namespace, reference["name"]))
    else:
        role = store.table.get("clusterroles", ("", reference["name"]))
    return list(role.obj.get("rules") or ()) if role else []


def _is_meant(subject: Mapping[str, Any], user: User) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
    return subject["name"] in (user.groups if subject["kind"] == "Group" else (user.name,))


def allows(store: Store, user: User, deed: Deed) -> bool:
    """Return whether a user may do it."""
    # As in kube-apiserver, this group is not bound by RBAC, so that a wrong role cannot lock it out.
    if MASTERS in user.groups:
        return True
    if any(deed.is_within(rule) for rule in user.rules):
        return True
    return any(deed.is_within(rule) for rule in rules_of(store, user, deed.namespace))


def check(call: Call, verb: str = "") -> None:
    """Refuse with 403 what the caller may not do; `verb` replaces the call's own."""
    deed = _deed(call, verb or call.target.verb)
    is_allowed = allows(call.store, call.user, deed)
    if MASTERS not in call.user.groups:
        permission = f"{deed.verb} {deed.group or 'core'}/{deed.resource}"
        call.world.state(Decisions).note(call.user.name, permission, is_allowed=is_allowed)
    if not is_allowed:
        where = f'in the namespace "{deed.namespace}"' if deed.namespace else "at the cluster scope"
        why = (
            f'User "{call.user.name}" cannot {deed.verb} resource "{deed.resource}" in API group '
            f'"{deed.group}" {where}'
        )
        raise errors.forbidden(call.resource.plural, call.resource.group, call.target.name, why)


def _deed(call: Call, verb: str) -> Deed:
    target, resource = call.target, call.resource
    is_namespace = resource.key == "namespaces"
    return Deed(
        verb=verb,
        group=resource.group,
        resource=f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural,
        name=target.name,
        namespace=target.name if is_namespace else target.namespace or "",
    )


def check_grant(call: Call, obj: Mapping[str, Any]) -> None:
    """Refuse with 403 a role or a binding that grants what its creator does not have."""
    if call.resource.group != GROUP or MASTERS in call.user.groups:
        return
    namespace = call.target.namespace or ""
    if _may_escalate(call, obj, namespace):
        return
    if call.resource.key.endswith("bindings"):
        granted = role_rules(call.store, obj["roleRef"], namespace)
    else:
        granted = obj.get("rules") or []
    # Otherwise a user who may write roles could give itself every right (privilege escalation).
    missing = [rule for rule in granted if not _holds(call, rule, namespace)]
    if missing:
        why = (
            f'user "{call.user.name}" (groups={list(call.user.groups)}) is attempting to grant RBAC '
            "permissions not currently held:\n" + "\n".join(errors.go_like(rule) for rule in missing)
        )
        raise errors.forbidden(call.resource.plural, GROUP, str(obj["metadata"].get("name", "")), why)


def _may_escalate(call: Call, obj: Mapping[str, Any], namespace: str) -> bool:
    """Return whether the caller has the verb `bind` on a binding's role, or `escalate` on a role.

    See "Privilege escalation prevention and bootstrapping" in Kubernetes' documentation of RBAC.
    """
    if call.resource.key.endswith("bindings"):
        verb, plural, name = "bind", f"{obj['roleRef']['kind'].lower()}s", obj["roleRef"]["name"]
    else:
        verb, plural, name = "escalate", call.resource.plural, str(obj["metadata"].get("name", ""))
    deed = Deed(verb=verb, group=GROUP, resource=plural, name=name, namespace=namespace)
    return allows(call.store, call.user, deed)


def _holds(call: Call, rule: Mapping[str, Any], namespace: str) -> bool:
    return all(
        allows(
            call.store,
            call.user,
            Deed(verb=verb, group=group, resource=resource, namespace=namespace, name=name),
        )
        for verb in rule.get("verbs") or ()
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for name in rule.get("resourceNames") or ("",)
    )
