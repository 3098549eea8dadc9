"""The client of an API server: reads, changes, watches and their errors."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import (
    ApiUnreachableError,
    ConflictError,
    DeniedError,
    InvalidError,
    OverloadedError,
)
from cloudrec.kubernetes.client.watching import WatchEvent
from cloudrec.kubernetes.client.wire import ApiRequest, warnings_in
from tests.contract.kubernetes.support import Server, config_map


def test_an_applied_object_is_read_listed_and_applied_again_without_a_change(
    server: Server, kube: Kube
) -> None:
    wanted = config_map("one", server.namespace, a="1")
    made = kube.apply(wanted)
    again = kube.apply(wanted)
    found = kube.get("ConfigMap", "one", namespace=server.namespace)
    listed = kube.list("ConfigMap", namespace=server.namespace, labels={"app": "one"})
    assert found is not None
    assert found["data"] == {"a": "1"}
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert [(each["kind"], each["metadata"]["name"]) for each in listed] == [("ConfigMap", "one")]
    assert kube.live(wanted) == found


def test_a_field_owned_by_another_manager_is_a_conflict_that_names_both(server: Server, kube: Kube) -> None:
    place = f"/api/v1/namespaces/{server.namespace}/configmaps"
    theirs = config_map("two", server.namespace, a="theirs")
    kube.raw("POST", place, body=theirs, query={"fieldManager": "kubectl-edit"})
    ours = config_map("two", server.namespace, a="ours")
    with pytest.raises(ConflictError) as caught:
        kube.apply(ours)
    assert caught.value.owners == {".data.a": "kubectl-edit"}
    assert kube.apply(ours, force=True)["data"] == {"a": "ours"}


def test_a_warning_of_the_server_is_logged_once(kube: Kube, caplog: pytest.LogCaptureFixture) -> None:
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "warned", "labels": {"pod-security.kubernetes.io/warn": "baseline"}},
        }
    )
    for name in ("first", "second"):
        container = {"name": "main", "image": "registry.example/x"}
        spec = {"hostNetwork": True, "restartPolicy": "Never", "containers": [container]}
        kube.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "warned"},
                "spec": {"suspend": True, "template": {"spec": spec}},
            }
        )
    warned = [record.getMessage() for record in caplog.records if "the API server warns" in record.message]
    found = "host namespaces (hostNetwork=true)"
    assert warned == [f'the API server warns: would violate PodSecurity "baseline:latest": {found}']
    kube.delete("Namespace", "warned")


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ("", []),
        ('299 - "batch/v1beta1 CronJob is deprecated"', ["batch/v1beta1 CronJob is deprecated"]),
        ('299 - "unknown field \\"spec.a\\"", 299 - "b, c"', ['unknown field "spec.a"', "b, c"]),
        ("nonsense", []),
    ],
)
def test_the_texts_of_a_warning_header_are_read(header: str, texts: list[str]) -> None:
    assert warnings_in(header) == texts


def test_a_second_create_is_reported_as_already_existing(server: Server, kube: Kube) -> None:
    kube.create(config_map("three", server.namespace))
    with pytest.raises(ConflictError) as caught:
        kube.create(config_map("three", server.namespace))
    assert caught.value.exists


def test_a_dry_run_changes_nothing(server: Server, kube: Kube) -> None:
    kube.apply(config_map("never", server.namespace), dry_run=True)
    assert kube.get("ConfigMap", "never", namespace=server.namespace) is None


def test_a_delete_affects_only_the_object_with_the_given_uid(server: Server, kube: Kube) -> None:
    made = kube.create(config_map("four", server.namespace))
    with pytest.raises(ConflictError):
        kube.delete("ConfigMap", "four", namespace=server.namespace, uid="another")
    uid = made["metadata"]["uid"]
    assert kube.delete("ConfigMap", "four", namespace=server.namespace, uid=uid)
    assert not kube.delete("ConfigMap", "four", namespace=server.namespace)


def test_a_server_error_is_reported_with_the_message_of_the_server(server: Server, kube: Kube) -> None:
    with pytest.raises(InvalidError) as caught:
        kube.create(config_map("Not_A_Name", server.namespace))
    assert "metadata.name" in caught.value.message


def test_lists_are_read_in_pages(server: Server, kube: Kube) -> None:
    for number in range(5):
        kube.apply({**config_map(f"page-{number}", server.namespace), "data": {}})
    found = kube.listing("ConfigMap", namespace=server.namespace, page=2).items
    assert {f"page-{number}" for number in range(5)} <= {each["metadata"]["name"] for each in found}


def test_a_long_list_is_compressed_and_complete(server: Server, kube: Kube) -> None:
    for number in range(4):
        kube.create(config_map(f"long-{number}", server.namespace, text="long " * 10_000))
    path = f"/api/v1/namespaces/{server.namespace}/configmaps"
    packed = kube._wire._opened(ApiRequest(method="GET", path=path, what="list", is_long=True))
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.response.read(decode_content=False)) < 20_000
    listed = kube.list("ConfigMap", namespace=server.namespace)
    found = [each for each in listed if "text" in each.get("data", {})]
    assert [len(each["data"]["text"]) for each in found] == [50_000] * 4


def test_an_unknown_kind_is_reported_before_any_request_for_it(kube: Kube) -> None:
    assert kube.kinds.has("Pod")
    assert not kube.kinds.has("example.com/v1/Nothing")


def test_another_cluster_of_the_same_name_is_refused(server: Server, kube: Kube) -> None:
    identity = kube.identity()
    server.connect(identity=identity).close()
    with pytest.raises(PreflightError, match="another cluster than before"):
        server.connect(identity="0" * 36)


def test_a_watch_yields_existing_objects_and_each_change(server: Server, kube: Kube) -> None:
    kube.apply(config_map("watched", server.namespace, a="1"))
    seen: list[tuple[str, str]] = []
    stream = kube.watch("ConfigMap", namespace=server.namespace, labels={"app": "watched"}, timeout_s=10)
    for event in stream:
        seen.append((event.type, event.object.get("data", {}).get("a", "")))
        if len(seen) == 1:
            kube.apply(config_map("watched", server.namespace, a="2"))
        elif len(seen) == 2:
            kube.delete("ConfigMap", "watched", namespace=server.namespace)
        else:
            break
    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[1][1] == "2"


@pytest.mark.parametrize("how", ["gone", "close", "drop"])
def test_an_interrupted_watch_continues_without_losing_a_change(server: Server, kube: Kube, how: str) -> None:
    name = f"through-{how}"
    kube.apply(config_map(name, server.namespace, a="1"))
    seen: list[str] = []
    for event in kube.watch("ConfigMap", namespace=server.namespace, labels={"app": name}, timeout_s=20):
        seen.append(event.object["data"]["a"])
        if len(seen) == 1:
            kube.apply(config_map(name, server.namespace, a="2"))
        elif len(seen) == 2:
            server.control(watches=how)
            kube.apply(config_map(name, server.namespace, a="3"))
        else:
            break
    assert seen == ["1", "2", "3"]


def test_a_deletion_during_an_interruption_is_reported_when_the_watch_continues(
    server: Server, kube: Kube
) -> None:
    kube.apply(config_map("vanishes", server.namespace, a="1"))
    events: list[WatchEvent] = []
    stream = kube.watch("ConfigMap", namespace=server.namespace, labels={"app": "vanishes"}, timeout_s=20)
    events.append(next(stream))
    server.control(faults=[{"kind": "throttle", "times": 1, "action": "watch.*"}])
    kube.delete("ConfigMap", "vanishes", namespace=server.namespace)
    events.append(next(stream))
    assert [event.type for event in events] == ["ADDED", "DELETED"]


@pytest.mark.parametrize("kind", ["throttle", "5xx", "lost"])
def test_reads_and_applies_are_retried_until_the_server_recovers(
    server: Server, kube: Kube, kind: str
) -> None:
    server.control(faults=[{"kind": kind, "times": 1}])
    kube.apply(config_map("again", server.namespace, a=kind))
    server.control(faults=[{"kind": kind, "times": 1}])
    found = kube.get("ConfigMap", "again", namespace=server.namespace)
    assert found is not None
    assert found["data"] == {"a": kind}


def test_a_create_that_may_have_succeeded_is_not_retried(server: Server, kube: Kube) -> None:
    server.control(faults=[{"kind": "5xx", "times": 1}])
    with pytest.raises(OverloadedError):
        kube.create(config_map("once", server.namespace))


def _kubeconfig(folder: Path, server: Server, **user: Any) -> Server:
    document = json.loads(Path(server.kubeconfig).read_text(encoding="utf-8"))
    document["users"][0]["user"] = user
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document), encoding="utf-8")
    return Server(kubeconfig=str(path), context=server.context, namespace=server.namespace)


def _is_json(path: str) -> bool:
    return Path(path).read_text(encoding="utf-8").startswith("{")


def test_a_rejected_token_is_reported_with_its_remedy(server: Server, tmp_path: Path) -> None:
    if not _is_json(server.kubeconfig):
        pytest.skip("the kubeconfig of a real server is not ours to change")
    with _kubeconfig(tmp_path, server, token="wrong").connect() as kube, pytest.raises(DeniedError) as caught:  # noqa: S106 - the point of the test
        kube.list("Pod")
    assert "does not accept our credentials (401)" in caught.value.message
    assert "log in" in (caught.value.remedy or "")


def test_a_failed_credentials_command_is_reported_with_its_error_output(
    server: Server, tmp_path: Path
) -> None:
    if not _is_json(server.kubeconfig):
        pytest.skip("the kubeconfig of a real server is not ours to change")
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", "echo no >&2; exit 3"],
    }
    with (
        _kubeconfig(tmp_path, server, exec=command).connect() as kube,
        pytest.raises(PreflightError) as caught,
    ):
        kube.list("Pod")
    assert "failed: no" in caught.value.message


def test_a_server_with_an_untrusted_certificate_is_refused(server: Server, tmp_path: Path) -> None:
    if not _is_json(server.kubeconfig):
        pytest.skip("the kubeconfig of a real server is not ours to change")
    document = json.loads(Path(server.kubeconfig).read_text(encoding="utf-8"))
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document), encoding="utf-8")
    stranger = Server(kubeconfig=str(path), context=server.context)
    with stranger.connect() as kube, pytest.raises(ApiUnreachableError, match="is not trusted"):
        kube.list("Pod")


def test_a_missing_context_is_reported_with_the_contexts_of_the_kubeconfig(server: Server) -> None:
    with pytest.raises(PreflightError, match="no context 'elsewhere'"):
        server.connect(context="elsewhere")


def test_an_unreachable_address_is_reported_within_seconds(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"https://127.0.0.1:{held.getsockname()[1]}"
        cluster = {"name": "c", "cluster": {"server": address}}
        document = {
            "clusters": [cluster],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document), encoding="utf-8")
        target = Server(kubeconfig=str(path), context="c").target()
        with Kube.connect(target, patience_s=0.5) as kube, pytest.raises(ApiUnreachableError) as caught:
            kube.list("Pod")
    assert "does not answer" in caught.value.message
    assert "private endpoint" in (caught.value.remedy or "")


def test_several_threads_share_one_client(server: Server, kube: Kube) -> None:
    names = [f"thread-{number}" for number in range(8)]
    threads = [Thread(target=kube.apply, args=(config_map(name, server.namespace),)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(kube.get("ConfigMap", name, namespace=server.namespace) for name in names)
