"""Requests about services, policies, rights, definitions, nodes, and who asks."""

from __future__ import annotations

from typing import Any

from tests.contract.kubernetes_recorded.steps import (
    CORE,
    KINDS,
    NETWORK,
    POLICY,
    RBAC,
    RBAC_ALL,
    SPACE,
    Step,
    apply,
    delete,
    get,
    obj,
    patch,
    post,
    put,
    step,
)

SERVICES, POLICIES = f"{CORE}/services", f"{NETWORK}/networkpolicies"


def services() -> list[Step]:
    """Services."""
    port = {"port": 80}

    def service(name: str, **spec: Any) -> dict[str, Any]:
        return obj("v1", "Service", name, spec={"ports": [port], **spec})

    bad: list[dict[str, Any]] = [
        {"type": "Sometimes"},
        {"ports": []},
        {"ports": [{"port": 0}]},
        {"ports": [port, {"port": 81}]},
        {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]},
        {"ports": [{"port": 80, "protocol": "HTTP"}]},
        {"ports": [{"port": 80, "targetPort": "UPPER_"}]},
        {"type": "NodePort", "clusterIP": "None"},
        {"clusterIP": "10.0.0.999"},
        {"clusterIP": "192.168.1.1"},
        {"type": "ExternalName"},
        {"type": "ExternalName", "externalName": "a..b"},
        {"sessionAffinity": "Maybe"},
        {"type": "NodePort", "ports": [{"port": 80, "nodePort": 1}]},
        {"selector": {"a b": "x"}},
        {"externalTrafficPolicy": "Local"},
        {"ipFamilyPolicy": "RequireDualStack"},
        {"type": "NodePort", "externalTrafficPolicy": "Odd"},
        {"internalTrafficPolicy": "Odd"},
        {"ports": [{"port": 80, "nodePort": 30001}]},
    ]
    show = [
        "spec.type",
        "spec.sessionAffinity",
        "spec.ipFamilyPolicy",
        "spec.internalTrafficPolicy",
        "spec.ports.0",
    ]
    return [
        post(SERVICES, service("one"), keep="service", show=show),
        post(
            SERVICES,
            service("headless", clusterIP="None", publishNotReadyAddresses=True),
            show=[*show, "spec.clusterIP", "spec.clusterIPs"],
        ),
        post(SERVICES, service("1digit", clusterIP="None"), show=["kind"]),
        post(SERVICES, service("dots.no")),
        post(SERVICES, service("n" * 64)),
        post(
            SERVICES,
            service("outside", type="ExternalName", externalName="example.org", ports=None),
            show=["spec.type"],
        ),
        *(post(SERVICES, service(f"bad-{number}", **each)) for number, each in enumerate(bad)),
        patch("merge", f"{SERVICES}/one", {"spec": {"clusterIP": "10.96.77.77"}}),
        patch("merge", f"{SERVICES}/headless", {"spec": {"selector": {"a": "b"}}}, show=["spec.selector"]),
        put(f"{SERVICES}/one", service("one", selector={"a": "b"}), show=["spec.type", "spec.selector"]),
    ]


def policies() -> list[Step]:
    """Network policies and disruption budgets."""

    def policy(name: str, **spec: Any) -> dict[str, Any]:
        return obj("networking.k8s.io/v1", "NetworkPolicy", name, spec={"podSelector": {}, **spec})

    def block(cidr: str, *but: str) -> dict[str, Any]:
        return {
            "ingress": [{"from": [{"ipBlock": {"cidr": cidr, **({"except": list(but)} if but else {})}}]}]
        }

    bad: list[dict[str, Any]] = [
        block("10.0.0.1/24"),
        block("10.0.0.0"),
        block("x"),
        block("10.0.0.0/33"),
        block(""),
        block("10.0.0.0/16", "10.1.0.0/24"),
        block("10.0.0.0/16", "10.0.0.0/16"),
        block("10.0.0.0/16", "x"),
        {"ingress": [{"ports": [{"port": 0}]}]},
        {"ingress": [{"ports": [{"port": 80, "endPort": 70}]}]},
        {"ingress": [{"ports": [{"port": "a", "endPort": 70}]}]},
        {"ingress": [{"ports": [{"protocol": "HTTP"}]}]},
        {"policyTypes": ["Sideways"]},
        {"policyTypes": ["Ingress", "Egress", "Ingress"]},
        {"ingress": [{"from": [{}]}]},
        {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}]},
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}},
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}},
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
        {"podSelector": {"matchLabels": {"a b": "x"}}},
        {"ingress": [{"ports": [{"endPort": 80}]}]},
    ]
    budgets = f"{POLICY}/poddisruptionbudgets"

    def budget(name: str, **spec: Any) -> dict[str, Any]:
        return obj(
            "policy/v1", "PodDisruptionBudget", name, spec={"selector": {"matchLabels": {"a": "b"}}, **spec}
        )

    worse: list[dict[str, Any]] = [
        {"minAvailable": -1},
        {"minAvailable": "101%"},
        {"minAvailable": "x"},
        {"minAvailable": 1, "maxUnavailable": 1},
        {"maxUnavailable": "5"},
        {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "Odd"},
    ]
    return [
        post(POLICIES, policy("one"), show=["spec.policyTypes"]),
        post(POLICIES, policy("two", ingress=[], policyTypes=["Ingress"]), show=["spec"]),
        post(
            POLICIES,
            policy("three", egress=[{"ports": [{"port": 443}]}]),
            show=["spec.policyTypes", "spec.egress.0.ports"],
        ),
        *(post(POLICIES, policy(f"bad-{number}", **each)) for number, each in enumerate(bad)),
        apply(
            f"{POLICIES}/empty",
            policy("empty", policyTypes=["Ingress"]),
            keep="empty",
            show=["metadata.managedFields"],
        ),
        post(budgets, budget("one", minAvailable=1), show=["spec.minAvailable"]),
        post(budgets, budget("percent", maxUnavailable="50%"), show=["spec.maxUnavailable"]),
        *(post(budgets, budget(f"bad-{number}", **each)) for number, each in enumerate(worse)),
    ]


def rights() -> list[Step]:
    """Roles, bindings, and calls in the name of others."""
    roles, bindings = f"{RBAC}/roles", f"{RBAC}/rolebindings"
    group = "rbac.authorization.k8s.io"
    ann = {"Impersonate-User": "ann"}
    team = {"Impersonate-User": "ann", "Impersonate-Group": "system:masters"}
    account = {"Impersonate-User": f"system:serviceaccount:{SPACE}:default"}
    reads = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
    ref = {"apiGroup": group, "kind": "Role", "name": "reader"}
    subject = {"kind": "User", "name": "ann", "apiGroup": group}

    def role(name: str, *rules: Any) -> dict[str, Any]:
        return obj(f"{group}/v1", "Role", name, rules=list(rules))

    def binding(name: str, *subjects: Any, to: Any = None) -> dict[str, Any]:
        return obj(f"{group}/v1", "RoleBinding", name, roleRef=to or ref, subjects=list(subjects))

    def review(**attributes: str) -> dict[str, Any]:
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }

    asks = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    whole = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    read = {"verb": "get", "resource": "configmaps", "namespace": SPACE}
    return [
        post(roles, role("reader", reads), show=["rules"]),
        post(roles, role("bad", {**reads, "verbs": []})),
        post(roles, role("bad", {**reads, "apiGroups": []})),
        post(roles, role("bad", {"nonResourceURLs": ["/x"], "verbs": ["get"]})),
        get(f"{CORE}/configmaps/one", headers=ann),
        post(bindings, binding("ann", subject), show=["subjects"]),
        post(bindings, binding("bad", {**subject, "kind": "Robot"})),
        post(bindings, binding("bad", {"kind": "ServiceAccount", "name": "default"})),
        post(bindings, binding("bad", {**subject, "apiGroup": ""}), show=["subjects"]),
        post(bindings, binding("bad-ref", subject, to={**ref, "name": ""})),
        post(bindings, binding("bad-ref", subject, to={**ref, "kind": "Thing"})),
        patch("merge", f"{bindings}/ann", {"roleRef": {"name": "other"}}),
        get(f"{CORE}/configmaps/one", headers=ann, until=200, show=["kind"]),
        get(f"{CORE}/secrets", headers=ann),
        get("/api/v1/nodes", headers=ann),
        post(f"{CORE}/configmaps", obj("v1", "ConfigMap", "anns"), headers=ann),
        post(roles, role("more", whole), headers=ann),
        post(f"{CORE}/configmaps", obj("v1", "ConfigMap", "masters"), headers=team, show=["kind"]),
        get(f"{CORE}/pods", headers=account),
        get(f"{CORE}/pods", headers={"Impersonate-Group": "system:masters"}),
        get(f"{CORE}/pods", headers={"Impersonate-Extra-a": "b"}),
        get("/version", headers=ann, show=["major"]),
        post(asks, review(**read), headers=ann, show=["status.allowed"]),
        post(asks, review(**{**read, "verb": "delete"}), headers=ann, show=["status.allowed"]),
        post(asks, review(**read), show=["status.allowed"]),
        post(asks, {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}),
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            headers=ann,
            show=["status.userInfo.username", "status.userInfo.groups"],
        ),
        # As a user with a right to write roles, but without what the role grants.
        post(
            f"{RBAC_ALL}/clusterroles",
            obj(
                f"{group}/v1",
                "ClusterRole",
                "recorded-writer",
                rules=[{"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["*"]}],
            ),
        ),
        post(
            f"{RBAC_ALL}/clusterrolebindings",
            obj(
                f"{group}/v1",
                "ClusterRoleBinding",
                "recorded-writer",
                roleRef={"apiGroup": group, "kind": "ClusterRole", "name": "recorded-writer"},
                subjects=[subject],
            ),
        ),
        get(roles, headers=ann, until=200, show=["kind"]),
        post(roles, role("grab", whole), headers=ann),
        post(roles, role("same", reads), headers=ann, show=["rules"]),
        post(
            bindings,
            binding("grab", subject, to={**ref, "kind": "ClusterRole", "name": "cluster-admin"}),
            headers=ann,
        ),
        post(bindings, binding("same", subject), headers=ann, show=["roleRef"]),
        delete(f"{RBAC_ALL}/clusterroles/recorded-writer"),
        delete(f"{RBAC_ALL}/clusterrolebindings/recorded-writer"),
    ]


def stores() -> list[Step]:
    """Secrets, accounts, claims, classes."""
    secrets, accounts = f"{CORE}/secrets", f"{CORE}/serviceaccounts"
    claims, classes = f"{CORE}/persistentvolumeclaims", "/apis/scheduling.k8s.io/v1/priorityclasses"
    ask = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases"

    def secret(name: str, **rest: Any) -> dict[str, Any]:
        return obj("v1", "Secret", name, **rest)

    def claim(name: str, **spec: Any) -> dict[str, Any]:
        return obj("v1", "PersistentVolumeClaim", name, spec={**ask, **spec})

    def priority(name: str, **rest: Any) -> dict[str, Any]:
        return obj("scheduling.k8s.io/v1", "PriorityClass", name, **rest)

    return [
        post(secrets, secret("one", stringData={"a": "1"}), show=["data", "stringData", "type"]),
        post(secrets, secret("bad", data={"a": "!"})),
        post(secrets, secret("bad", type="kubernetes.io/tls", data={})),
        post(secrets, secret("bad", type="kubernetes.io/dockerconfigjson", stringData={"a": "1"})),
        post(
            secrets,
            secret("bad", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "x"}),
        ),
        post(secrets, secret("bad", type="kubernetes.io/service-account-token")),
        patch("merge", f"{secrets}/one", {"type": "other"}),
        post(secrets, secret("fixed", immutable=True)),
        patch("merge", f"{secrets}/fixed", {"stringData": {"a": "1"}}),
        post(accounts, obj("v1", "ServiceAccount", "one"), show=["secrets", "automountServiceAccountToken"]),
        post(f"{accounts}/one/token", {**token, "spec": {"expirationSeconds": 60}}),
        post(f"{accounts}/one/token", {**token, "spec": {"expirationSeconds": 600}}, show=["kind"]),
        post(f"{accounts}/absent/token", {**token, "spec": {}}),
        post(claims, claim("one"), show=["spec.volumeMode", "status.phase"]),
        post(claims, claim("bad", accessModes=[])),
        post(claims, claim("bad", accessModes=["Sometimes"])),
        post(claims, claim("bad", resources={})),
        post(claims, claim("bad", resources={"requests": {"storage": "0"}})),
        post(claims, claim("bad", volumeMode="Odd")),
        post(claims, claim("bad", storageClassName="Not_Valid")),
        patch("merge", f"{claims}/one", {"spec": {"accessModes": ["ReadWriteMany"]}}),
        patch("merge", f"{claims}/one", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
        post(classes, priority("recorded", value=5), show=["preemptionPolicy"]),
        post(classes, priority("system-mine", value=5)),
        post(classes, priority("huge", value=2_000_000_000)),
        post(classes, priority("odd", value=1, preemptionPolicy="Odd")),
        patch("merge", f"{classes}/recorded", {"value": 6}),
        delete(f"{classes}/recorded"),
        post(leases, obj("coordination.k8s.io/v1", "Lease", "one", spec={"leaseDurationSeconds": 0})),
        post(
            leases, obj("coordination.k8s.io/v1", "Lease", "one", spec={"holderIdentity": "a"}), show=["spec"]
        ),
        post(leases, obj("coordination.k8s.io/v1", "Lease", "two", spec={"renewTime": "yesterday"})),
    ]


def machines() -> list[Step]:
    """Nodes and events."""
    nodes = "/api/v1/nodes"
    event = {
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": SPACE},
        "reason": "x",
        "message": "y",
        "type": "Normal",
        "source": {"component": "c"},
    }

    def node(name: str, **spec: Any) -> dict[str, Any]:
        return obj("v1", "Node", name, spec={"unschedulable": True, **spec})

    taint = {"key": "a", "effect": "NoSchedule"}
    return [
        post(nodes, node("recorded-node"), show=["spec.unschedulable"]),
        post(nodes, node("Bad_Node")),
        post(nodes, node("bad", taints=[{"key": "a", "effect": "Sometimes"}])),
        post(nodes, node("bad", taints=[taint, taint])),
        post(nodes, node("bad", taints=[{"key": "", "effect": "NoSchedule"}])),
        post(nodes, node("bad", podCIDR="10.0.0.999/24")),
        patch(
            "merge", f"{nodes}/recorded-node", {"metadata": {"labels": {"a": "b"}}}, show=["metadata.labels"]
        ),
        patch("merge", f"{nodes}/recorded-node", {"spec": {"providerID": "x://1"}}, show=["spec.providerID"]),
        patch("merge", f"{nodes}/recorded-node", {"spec": {"providerID": "x://2"}}),
        patch("merge", f"{nodes}/recorded-node/status", {"status": {"capacity": {"cpu": "x"}}}),
        delete(f"{nodes}/recorded-node", show=["status"]),
        post(f"{CORE}/events", {**obj("v1", "Event", "one"), **event}, show=["reason"]),
        post(
            f"{CORE}/events",
            {
                **obj("v1", "Event", "two"),
                **event,
                "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"},
            },
        ),
        post("/api/v1/namespaces/default/events", {**obj("v1", "Event", "one"), **event}),
    ]


def definitions() -> list[Step]:
    """Kinds of users."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 9},
                    "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                    "name": {"type": "string", "maxLength": 3},
                },
            }
        },
    }

    def kind(plural: str, raw: Any, **spec: Any) -> dict[str, Any]:
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": raw},
            "subresources": {"status": {}},
        }
        names = {
            "plural": plural,
            "singular": plural[:-1],
            "kind": plural.title(),
            "listKind": f"{plural.title()}List",
        }
        usual = {"group": "recorded.example", "names": names, "scope": "Namespaced", "versions": [version]}
        return obj(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            f"{plural}.recorded.example",
            spec={**usual, **spec},
        )

    things = f"/apis/recorded.example/v1/namespaces/{SPACE}/things"

    def thing(called: str, /, **spec: Any) -> dict[str, Any]:
        return obj("recorded.example/v1", "Things", called, spec=spec)

    return [
        post(KINDS, kind("things", schema), show=["spec.conversion.strategy"]),
        post(KINDS, kind("things", schema)),
        post(KINDS, {**kind("others", schema), "metadata": {"name": "wrong"}}),
        post(KINDS, kind("others", {"properties": {"spec": {"type": "object"}}})),
        post(KINDS, kind("others", {"type": "object", "properties": {"spec": {"type": "oddity"}}})),
        post(KINDS, kind("others", schema, scope="Everywhere")),
        post(KINDS, kind("others", schema, versions=[])),
        post(things, thing("one", size=5), until=201, keep="thing", show=["spec", "metadata.generation"]),
        post(things, thing("bad")),
        post(things, thing("bad", size=0)),
        post(things, thing("bad", size=10)),
        post(things, thing("bad", size="5")),
        post(things, thing("bad", size=5, mode="c")),
        post(things, thing("bad", size=5, name="long")),
        post(things, thing("pruned", size=5, extra=1), show=["spec"]),
        post(things, thing("strict", size=5, extra=1), fieldValidation="Strict"),
        post(things, thing("Bad_Name", size=5)),
        put(f"{things}/one", thing("one", size=6)),
        patch("strategic", f"{things}/one", {"spec": {"size": 6}}),
        patch("merge", f"{things}/one", {"spec": {"size": 6}}, show=["spec", "metadata.generation"]),
        patch("merge", f"{things}/one", {"status": {"x": 1}}, show=["status"]),
        apply(f"{things}/one", thing("one", size=7), show=[]),
        apply(f"{things}/applied", thing("applied", size=7), show=["spec", "metadata.managedFields"]),
        get(f"{things}", labelSelector="a=b", show=["kind"]),
        get(f"{things}", fieldSelector="spec.size=5"),
        delete(f"{KINDS}/things.recorded.example", show=["kind"]),
    ]


def server() -> list[Step]:
    """Discovery, and what is no resource."""
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    return [
        get("/version", show=["major"]),
        get("/healthz"),
        get("/readyz"),
        get("/livez"),
        get("/api", show=["kind"]),
        get("/apis", show=["kind"]),
        get("/api/v1", show=["kind", "groupVersion"]),
        get("/apis/batch", show=["kind", "name"]),
        get("/apis/batch/v1", show=["kind", "groupVersion"]),
        get("/apis/batch/v9"),
        get("/apis/nothing.example"),
        get("/api/v9"),
        get("/openapi/v3", show=["paths"]),
        get("/apis", headers={"Accept": aggregated}, show=["kind", "apiVersion"]),
        get("/nothing"),
        step("DELETE", "/version"),
        step("POST", "/apis", {}),
        get("/api/v1/namespaces/recorded/configmaps/one/status"),
        step("DELETE", "/api/v1/namespaces", show=["kind"]),
        step(
            "PUT",
            "/api/v1/namespaces/recorded/status",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
            show=["kind"],
        ),
        get("/api/v1/componentstatuses/nothing"),
        delete("/api/v1/namespaces/limited", show=["status.phase"]),
    ]


def steps() -> list[Step]:
    """All of them, in order."""
    return [*services(), *policies(), *rights(), *stores(), *machines(), *definitions(), *server()]
