"""Authentication and authorization."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from tests.sandbox.kubernetes.support import STRANGER, Kubernetes, config_map, refusal, status_of

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


def grant(kube: Kubernetes, who: dict[str, Any], *rules: dict[str, Any], namespace: str = "default") -> None:
    place = f"{RBAC}/namespaces/{namespace}"
    kube.done("POST", f"{place}/roles", {"metadata": {"name": "one"}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}
    body = {"metadata": {"name": "one"}, "roleRef": reference, "subjects": [who]}
    kube.done("POST", f"{place}/rolebindings", body)


def rule(*verbs: str, **changes: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": ["configmaps"], "verbs": list(verbs), **changes}


def test_a_request_without_a_known_token_is_refused(kube: Kubernetes) -> None:
    told = kube.refused("GET", MAPS, bearer="wrong")
    assert (told["code"], told["reason"], told["message"]) == (401, "Unauthorized", "Unauthorized")


def test_anonymous_requests_can_only_read_health(kube: Kubernetes) -> None:
    assert kube.raw("GET", "/livez", bearer=STRANGER)[2] == b"ok"
    assert kube.done("GET", "/version", bearer=STRANGER)["gitVersion"]
    assert kube.refused("GET", "/api", bearer=STRANGER)["code"] == 403
    told = kube.refused("GET", MAPS, bearer=STRANGER)
    assert (told["code"], 'User "system:anonymous" cannot list' in told["message"]) == (403, True)


def test_a_user_has_only_the_rights_of_its_roles(kube: Kubernetes) -> None:
    kube.control(tokens=[{"token": "anne", "user": "anne", "groups": ["team"]}])
    error = refusal(kube.as_user("anne").list_namespaced_config_map, "default")
    assert (error.status, status_of(error)["reason"]) == (403, "Forbidden")
    assert status_of(error)["message"] == (
        'configmaps is forbidden: User "anne" cannot list resource "configmaps" in API group "" in the '
        'namespace "default"'
    )
    grant(kube, {"kind": "Group", "name": "team"}, rule("get", "list"))
    assert kube.as_user("anne").list_namespaced_config_map("default").items == []
    assert kube.refused("POST", MAPS, config_map("one"), bearer="anne")["code"] == 403
    assert kube.refused("GET", MAPS.replace("default", "kube-system"), bearer="anne")["code"] == 403


def test_a_rule_can_be_limited_to_one_name(kube: Kubernetes) -> None:
    kube.control(tokens=[{"token": "anne", "user": "anne"}])
    grant(kube, {"kind": "User", "name": "anne"}, rule("get", resourceNames=["mine"]))
    kube.done("POST", MAPS, config_map("mine"))
    kube.done("GET", f"{MAPS}/mine", bearer="anne")
    assert kube.refused("GET", f"{MAPS}/other", bearer="anne")["code"] == 403


def test_tokens_are_authenticated_by_their_prefix(kube: Kubernetes) -> None:
    kube.control(tokens=[{"prefix": "k8s-aws-v1.", "user": "role", "groups": ["system:masters"]}])
    kube.done("GET", MAPS, bearer="k8s-aws-v1.abcdef")


def test_tokens_of_a_service_account_are_valid_while_it_exists(kube: Kubernetes) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    kube.done("POST", accounts, {"metadata": {"name": "guard"}})
    asked = kube.done("POST", f"{accounts}/guard/token", {"spec": {"expirationSeconds": 600}})
    token = asked["status"]["token"]
    grant(kube, {"kind": "ServiceAccount", "name": "guard", "namespace": "default"}, rule("list"))
    kube.done("GET", MAPS, bearer=token)
    who = kube.done("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, bearer=token)
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:default:guard"
    kube.done("DELETE", f"{accounts}/guard")
    assert kube.refused("GET", MAPS, bearer=token)["code"] == 401


def test_any_user_can_review_its_own_access(kube: Kubernetes) -> None:
    kube.control(tokens=[{"token": "anne", "user": "anne"}])
    grant(kube, {"kind": "User", "name": "anne"}, rule("get"))
    api = client.AuthorizationV1Api(kube.as_user("anne").api_client)

    def may(verb: str) -> bool:
        wanted = client.V1ResourceAttributes(verb=verb, resource="configmaps", namespace="default")
        body = client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=wanted)
        )
        allowed: bool = api.create_self_subject_access_review(body).status.allowed
        return allowed

    assert (may("get"), may("delete")) == (True, False)


def test_a_user_cannot_grant_rights_that_it_lacks(kube: Kubernetes) -> None:
    kube.control(tokens=[{"token": "anne", "user": "anne"}])
    roles = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}
    grant(kube, {"kind": "User", "name": "anne"}, roles, rule("get"))
    path = f"{RBAC}/namespaces/default/roles"
    kube.done("POST", path, {"metadata": {"name": "less"}, "rules": [rule("get")]}, bearer="anne")
    told = kube.refused(
        "POST", path, {"metadata": {"name": "more"}, "rules": [rule("delete")]}, bearer="anne"
    )
    assert "attempting to grant RBAC permissions not currently held" in told["message"]
