"""Requests about any object: creation, replacement, patches, apply, deletion, lists."""

from __future__ import annotations

from typing import Any

from tests.contract.kubernetes_recorded.steps import (
    CORE,
    SPACE,
    Step,
    apply,
    config,
    delete,
    get,
    obj,
    patch,
    post,
    put,
    step,
)

MAPS = f"{CORE}/configmaps"
SPACES = "/api/v1/namespaces"
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "{one.uid}"}


def namespaces() -> list[Step]:
    """Namespaces and their pod security labels."""

    def space(name: str, **labels: str) -> dict[str, Any]:
        return obj("v1", "Namespace", name, meta={"labels": labels} if labels else None)

    level = {"pod-security.kubernetes.io/enforce": "strict"}
    return [
        post(SPACES, space(SPACE), keep="space", show=["status.phase", "spec.finalizers", "metadata.labels"]),
        post(SPACES, space(SPACE)),
        post(SPACES, space("Upper_Case")),
        post(SPACES, space("a" * 64)),
        post(SPACES, space("strict", **level)),
        post(SPACES, space("versioned", **{"pod-security.kubernetes.io/enforce-version": "v9"})),
        post(SPACES, space("odd", **{"-bad-": "x"})),
        patch("merge", f"{SPACES}/{SPACE}", {"metadata": {"labels": level}}),
        delete(f"{SPACES}/default"),
        delete(f"{SPACES}/kube-system"),
        delete(f"{SPACES}/kube-public"),
        delete(f"{SPACES}/absent"),
        get(f"{SPACES}/default", show=["status.phase"]),
        post(f"{SPACES}/absent/configmaps", config("x")),
        get(f"{SPACES}/absent/configmaps", show=["kind"]),
        get(f"{CORE}/serviceaccounts/default", until=200, show=["metadata.name"]),
    ]


def creation() -> list[Step]:
    """What may be created, and what a body may look like."""
    typed = {"type": "application/json"}
    return [
        post(
            MAPS,
            config("one", data={"a": "1"}, meta={"labels": {"n": "5", "app": "one"}}),
            keep="one",
            show=["data", "metadata.labels", "metadata.generation"],
        ),
        post(MAPS, config("two", data={}, meta={"labels": {"n": "2"}}), keep="two", show=["data"]),
        post(MAPS, config("one")),
        post(MAPS, config("Not_A_Name")),
        post(MAPS, config("{a*254}")),
        post(MAPS, config("", data={})),
        post(MAPS, {**config(""), "metadata": {"generateName": "made-"}}, show=["metadata.generateName"]),
        post(MAPS, config("keys", data={"not/a/key": "1"})),
        post(MAPS, config("twice", data={"a": "1"}, binaryData={"a": "MQ=="})),
        post(MAPS, config("base", binaryData={"a": "no base64!"})),
        post(MAPS, config("large", data={"a": "{x*1048577}"})),
        post(MAPS, config("labels", meta={"labels": {"a/b/c": "x"}})),
        post(MAPS, config("values", meta={"labels": {"a": "x y"}})),
        post(MAPS, config("notes", meta={"annotations": {"a b": "x"}})),
        post(MAPS, config("long", meta={"annotations": {"a": "{x*262145}"}})),
        post(MAPS, config("number", data={"a": 1})),
        post(MAPS, config("unknown", dat={"a": "1"}), fieldValidation="Strict"),
        post(MAPS, config("unknown-warn", dat={"a": "1"}), show=["data", "dat"]),
        post(MAPS, config("unknown-ignore", dat={"a": "1"}), fieldValidation="Ignore"),
        post(MAPS, config("unknown-odd"), fieldValidation="Loose"),
        post(MAPS, obj("v1", "Secret", "wrong-kind")),
        post(MAPS, obj("v2", "ConfigMap", "wrong-version")),
        post(MAPS, config("elsewhere", meta={"namespace": "default"})),
        post(MAPS, {"metadata": {"name": "bare"}, "kind": "", "apiVersion": ""}),
        post(MAPS, {"metadata": {"name": "bare-too"}}),
        step("POST", MAPS, raw="", **typed),
        step("POST", MAPS, raw="{", **typed),
        step("POST", MAPS, raw="[1]", **typed),
        step("POST", MAPS, raw="a: b: c", type="application/yaml"),
        step("POST", MAPS, raw="x", type="text/plain"),
        post(MAPS, config("dry"), dryRun="All", show=["metadata.name"]),
        post(MAPS, config("dry"), dryRun="Some"),
        get(f"{MAPS}/dry"),
        post(MAPS, config("versioned", meta={"resourceVersion": "5"})),
        post(MAPS, config("identified", meta={"uid": "5"})),
        post(MAPS, config("fixed", data={"a": "1"}, immutable=True), keep="fixed"),
        patch("merge", f"{MAPS}/fixed", {"data": {"a": "2"}}),
        patch("merge", f"{MAPS}/fixed", {"immutable": False}),
        post(f"{MAPS}/one", config("one")),
        step("PUT", MAPS, config("one")),
        post("/api/v1/configmaps", config("global")),
        post(f"{CORE}/nothings", config("x")),
        get("/apis/nothing.example/v1/things"),
        post(MAPS, config("manager"), fieldManager="{x*129}"),
    ]


def replacement() -> list[Step]:
    """PUT and patches: versions, uids, fields that stay."""
    return [
        put(f"{MAPS}/one", config("one", data={"a": "2"}), show=["data", "metadata.labels"]),
        put(f"{MAPS}/one", config("one", meta={"resourceVersion": "{one.version}"})),
        put(f"{MAPS}/one", config("one", meta={"resourceVersion": "abc"})),
        put(f"{MAPS}/one", config("one", meta={"uid": "00000000-0000-0000-0000-000000000000"})),
        put(f"{MAPS}/one", config("other")),
        put(f"{MAPS}/absent", config("absent")),
        put(f"{MAPS}/absent", config("absent", meta={"uid": "{one.uid}"})),
        put(f"{MAPS}/absent", config("absent", meta={"resourceVersion": "7"})),
        put(f"{MAPS}/one", {**config("one"), "metadata": {}}),
        put(f"{MAPS}/one", config("one", data={"a": "1"}, meta={"labels": {"n": "5", "app": "one"}})),
        patch("merge", f"{MAPS}/one", {"data": {"b": "2"}}, show=["data"]),
        patch("merge", f"{MAPS}/one", {"data": {"b": None}}, show=["data"]),
        patch("merge", f"{MAPS}/one", {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        patch("merge", f"{MAPS}/one", {"metadata": {"resourceVersion": "1"}}),
        patch("merge", f"{MAPS}/one", {"metadata": {"name": "other"}}),
        patch("merge", f"{MAPS}/one", {"metadata": {"namespace": "default"}}),
        patch("merge", f"{MAPS}/one", {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}),
        patch("merge", f"{MAPS}/one", {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}),
        patch("merge", f"{MAPS}/one", {"kind": "Secret"}),
        patch("merge", f"{MAPS}/one", {"dat": {"b": "1"}}),
        patch("merge", f"{MAPS}/one", {"dat": {"b": "1"}}, fieldValidation="Strict"),
        patch("merge", f"{MAPS}/one", [1]),
        patch("merge", f"{MAPS}/absent", {"data": {"b": "2"}}),
        patch("strategic", f"{MAPS}/one", {"data": {"c": "3"}}, show=["data"]),
        patch("strategic", f"{MAPS}/one", {"data": {"$patch": "delete"}}, show=["data"]),
        patch("json", f"{MAPS}/one", [{"op": "add", "path": "/data", "value": {"a": "1"}}], show=["data"]),
        patch("json", f"{MAPS}/one", [{"op": "test", "path": "/data/a", "value": "9"}]),
        patch("json", f"{MAPS}/one", [{"op": "remove", "path": "/data/absent"}]),
        patch("json", f"{MAPS}/one", [{"op": "jump", "path": "/data/a"}]),
        patch("json", f"{MAPS}/one", {"op": "add"}),
        step("PATCH", f"{MAPS}/one", {"data": {}}, type="application/json"),
        patch("merge", f"{MAPS}/one", {"data": {"d": "4"}}, dryRun="All", show=["data"]),
        get(f"{MAPS}/one", show=["data"]),
    ]


def applying() -> list[Step]:
    """Server-side apply."""
    path, whole = f"{MAPS}/applied", ["data", "metadata.managedFields"]
    return [
        apply(path, config("applied", data={"a": "1"}), "", show=[]),
        apply(path, config("applied", data={"a": "1"}), keep="applied", show=whole),
        apply(path, config("applied", data={"a": "1"}), show=whole),
        apply(path, config("applied", data={"a": "2"}), "two"),
        apply(path, config("applied", data={"a": "2"}), "two", force="true", show=whole),
        apply(path, config("applied", data={"a": "1"}), "one"),
        apply(path, config("applied", data={"b": "1"}), "one", show=whole),
        apply(path, config("applied"), "one", show=whole),
        apply(path, config("applied", meta={"managedFields": [{"manager": "x"}]})),
        apply(path, config("applied", meta={"managedFields": []})),
        apply(path, config("applied", meta={"uid": "00000000-0000-0000-0000-000000000000"})),
        apply(path, config("applied", meta={"resourceVersion": "1"})),
        apply(path, config("other")),
        apply(path, {"metadata": {"name": "applied"}}),
        apply(path, {"kind": "ConfigMap", "apiVersion": "v1"}),
        apply(path, config("applied", data={"a": 5})),
        apply(path, config("applied", dat={"a": "5"})),
        apply(path, config("applied", dat={"a": "5"}), fieldValidation="Strict"),
        apply(path, config("applied", data={"x": "1"}), dryRun="All", force="true", show=["data"]),
        apply(path, config("applied", meta={"namespace": "default"})),
        apply(path, config("applied", meta={"finalizers": ["example.org/a"]}), "three", show=whole),
        apply(path, config("applied"), "three", show=whole),
        apply(f"{MAPS}/fresh", config("fresh", meta={"uid": "{one.uid}"})),
        apply(f"{MAPS}/fresh", config("fresh", meta={"resourceVersion": "1"})),
        patch(
            "merge",
            path,
            {"data": {"m": "1"}},
            fieldManager="merger",
            show=["data", "metadata.managedFields"],
        ),
        patch("merge", path, {"metadata": {"managedFields": [{}]}}, show=["metadata.managedFields"]),
        post(
            MAPS,
            config("plain", data={"a": "1"}, meta={"labels": {"x": "1"}}),
            fieldManager="maker",
            show=["metadata.managedFields"],
        ),
        step("PATCH", path, raw="{", type="application/apply-patch+yaml", fieldManager="one"),
        apply(path, config("applied"), force="maybe"),
    ]


def deletion() -> list[Step]:
    """Finalizers, owners, preconditions."""
    held = f"{MAPS}/held"

    def owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
        return config(name, meta={"ownerReferences": list(owners)})

    without = [{key: value for key, value in _OWNER.items() if key != name} for name in _OWNER]
    return [
        post(MAPS, config("held", meta={"finalizers": ["plain"]})),
        post(MAPS, config("held", meta={"finalizers": ["example.org/a/b"]})),
        post(MAPS, config("held", meta={"finalizers": ["example.org/a"]}), keep="held"),
        delete(held, {"preconditions": {"uid": "{one.uid}"}}),
        delete(held, {"preconditions": {"resourceVersion": "1"}}),
        delete(held, {"propagationPolicy": "Sideways"}),
        delete(held, {"propagationPolicy": "Orphan", "orphanDependents": True}),
        delete(held, {"gracePeriodSeconds": -5}),
        delete(held, {"dryRun": ["All"]}, show=["kind"]),
        delete(held, {"dryRun": ["Some"]}),
        delete(held, {"unknown": 1}),
        delete(held, show=["kind", "metadata.finalizers"]),
        delete(held, show=["kind"]),
        patch("merge", held, {"metadata": {"finalizers": ["example.org/a", "example.org/b"]}}),
        patch("merge", held, {"data": {"a": "still"}}, show=["data"]),
        post(MAPS, config("held")),
        apply(held, config("held", data={"b": "1"})),
        patch("merge", held, {"metadata": {"finalizers": None}}, show=["kind"]),
        get(held),
        delete(held),
        delete(f"{MAPS}/two", show=["status", "kind"]),
        *(post(MAPS, owned("owned", each)) for each in without),
        post(
            MAPS,
            owned(
                "owned",
                {**_OWNER, "controller": True},
                {**_OWNER, "controller": True, "name": "two", "uid": "u"},
            ),
        ),
        post(
            MAPS,
            owned("owned", {**_OWNER, "controller": True, "blockOwnerDeletion": True}),
            show=["metadata.ownerReferences"],
        ),
        post(MAPS, owned("owned-bad", {**_OWNER, "kind": "Event"})),
        post(MAPS, config("gone-1", meta={"labels": {"gone": "yes"}})),
        post(MAPS, config("gone-2", meta={"labels": {"gone": "yes"}})),
        delete(MAPS, labelSelector="gone=yes", show=["kind"]),
        get(MAPS, labelSelector="gone=yes", show=["names"]),
        delete(MAPS, labelSelector="a in"),
    ]


def reading() -> list[Step]:
    """Lists, selectors, versions, other forms of an object."""
    partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    partials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"

    def select(text: str) -> Step:
        return get(MAPS, labelSelector=text, show=["names"])

    texts = [
        "n",
        "!n",
        "n=5",
        "n==5",
        "n!=5",
        "n in (5,6)",
        "n notin (5)",
        "n>3",
        "n<3",
        "n>x",
        "n>3,app=one",
        "n in ()",
        "n in 5",
        "n=a b",
        "n=5,",
        "a/b/c=5",
        "=5",
        "n>=5",
        "n in (5",
        "!n=5",
    ]
    return [
        *map(select, texts),
        get(MAPS, fieldSelector="metadata.name=one", show=["names"]),
        get(MAPS, fieldSelector="metadata.name!=one,metadata.namespace=recorded", show=["kind"]),
        get(MAPS, fieldSelector="data.a=1"),
        get(MAPS, fieldSelector="metadata.name"),
        get(MAPS, fieldSelector="metadata.name>a"),
        get("/api/v1/pods", fieldSelector="spec.nodeName=,status.phase!=Running", show=["kind"]),
        get("/api/v1/pods", fieldSelector="spec.priority=1"),
        get(MAPS, limit="1", show=["kind"]),
        get(MAPS, limit="-1", show=["kind"]),
        get(MAPS, limit="abc"),
        get(MAPS, **{"continue": "nonsense"}),
        get(MAPS, resourceVersion="0", show=["kind"]),
        get(MAPS, resourceVersion="abc"),
        get(MAPS, resourceVersionMatch="Exact"),
        get(MAPS, resourceVersionMatch="NotOlderThan"),
        get(MAPS, resourceVersion="1", resourceVersionMatch="Sometimes"),
        get(MAPS, resourceVersion="0", resourceVersionMatch="Exact"),
        get(MAPS, resourceVersion="{one.version}", resourceVersionMatch="NotOlderThan", show=["kind"]),
        get(MAPS, resourceVersion="999999999"),
        get(f"{MAPS}/one", resourceVersion="999999999"),
        get(f"{MAPS}/one", resourceVersion="abc"),
        get(MAPS, watch="true", resourceVersion="abc", timeoutSeconds="1"),
        get(MAPS, watch="true", resourceVersionMatch="Exact", resourceVersion="5", timeoutSeconds="1"),
        get(MAPS, watch="true", sendInitialEvents="true", timeoutSeconds="1"),
        get(MAPS, watch="true", labelSelector="a in", timeoutSeconds="1"),
        get(
            f"{MAPS}/one", headers={"Accept": partial}, show=["kind", "apiVersion", "data", "metadata.labels"]
        ),
        get(MAPS, headers={"Accept": partials}, show=["kind", "apiVersion"]),
        get(MAPS, headers={"Accept": table}, show=["kind", "apiVersion", "columnDefinitions.0.name"]),
        get(f"{MAPS}/one", headers={"Accept": table}, show=["kind"]),
        get(f"{MAPS}/one", headers={"Accept": "text/csv"}),
        get(f"{MAPS}/one", headers={"Accept": "*/*"}, show=["kind"]),
        get(f"{MAPS}/absent"),
    ]


def steps() -> list[Step]:
    """All of them, in order."""
    return [*namespaces(), *creation(), *replacement(), *applying(), *deletion(), *reading()]
