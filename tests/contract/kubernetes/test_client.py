"""The client speaks with an API server: reads, changes, watches, and what stands in their way."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cloudrec.errors import PreflightError
from cloudrec.kube.client import Kube
from cloudrec.kube.errors import (
    ConflictError,
    DeniedError,
    InvalidError,
    OverloadedError,
    UnreachableError,
)
from cloudrec.kube.watching import Event
from cloudrec.kube.wire import Request
from tests.contract.kubernetes.support import Server, config_map


def test_what_is_applied_is_read_listed_and_applied_again_without_a_change(
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


def test_a_field_that_another_manager_owns_is_a_conflict_that_names_both(server: Server, kube: Kube) -> None:
    place = f"/api/v1/namespaces/{server.namespace}/configmaps"
    theirs = config_map("two", server.namespace, a="theirs")
    kube.raw("POST", place, body=theirs, query={"fieldManager": "kubectl-edit"})
    ours = config_map("two", server.namespace, a="ours")
    with pytest.raises(ConflictError) as caught:
        kube.apply(ours)
    assert caught.value.owners == {".data.a": "kubectl-edit"}
    assert kube.apply(ours, force=True)["data"] == {"a": "ours"}


def test_a_second_create_is_told_as_existing(server: Server, kube: Kube) -> None:
    kube.create(config_map("three", server.namespace))
    with pytest.raises(ConflictError) as caught:
        kube.create(config_map("three", server.namespace))
    assert caught.value.exists


def test_a_dry_run_changes_nothing(server: Server, kube: Kube) -> None:
    kube.apply(config_map("never", server.namespace), dry_run=True)
    assert kube.get("ConfigMap", "never", namespace=server.namespace) is None


def test_an_object_is_deleted_once_and_only_the_one_that_is_meant(server: Server, kube: Kube) -> None:
    made = kube.create(config_map("four", server.namespace))
    with pytest.raises(ConflictError):
        kube.delete("ConfigMap", "four", namespace=server.namespace, uid="another")
    uid = made["metadata"]["uid"]
    assert kube.delete("ConfigMap", "four", namespace=server.namespace, uid=uid)
    assert not kube.delete("ConfigMap", "four", namespace=server.namespace)


def test_what_the_server_refuses_is_told_in_its_own_words(server: Server, kube: Kube) -> None:
    with pytest.raises(InvalidError) as caught:
        kube.create(config_map("Not_A_Name", server.namespace))
    assert "metadata.name" in caught.value.message


def test_lists_are_read_page_by_page(server: Server, kube: Kube) -> None:
    for number in range(5):
        kube.apply({**config_map(f"page-{number}", server.namespace), "data": {}})
    found = kube.listing("ConfigMap", namespace=server.namespace, page=2).items
    assert {f"page-{number}" for number in range(5)} <= {each["metadata"]["name"] for each in found}


def test_a_long_list_comes_compressed_and_whole(server: Server, kube: Kube) -> None:
    for number in range(4):
        kube.create(config_map(f"long-{number}", server.namespace, text="long " * 10_000))
    path = f"/api/v1/namespaces/{server.namespace}/configmaps"
    packed = kube._wire._opened(Request(method="GET", path=path, what="list", is_long=True))
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(packed.response.read(decode_content=False)) < 20_000
    found = [each for each in kube.list("ConfigMap", namespace=server.namespace) if "text" in each["data"]]
    assert [len(each["data"]["text"]) for each in found] == [50_000] * 4


def test_a_kind_that_the_cluster_lacks_is_told_before_anything_is_asked_of_it(kube: Kube) -> None:
    assert kube.kinds.has("Pod")
    assert not kube.kinds.has("example.com/v1/Nothing")


def test_another_cluster_of_that_name_is_refused(server: Server, kube: Kube) -> None:
    identity = kube.identity()
    server.connect(identity=identity).close()
    with pytest.raises(PreflightError, match="another one than before"):
        server.connect(identity="0" * 36)


def test_a_watch_tells_what_is_there_and_each_change(server: Server, kube: Kube) -> None:
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
def test_a_watch_goes_on_after_whatever_ends_it_and_loses_no_change(
    server: Server, kube: Kube, how: str
) -> None:
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


def test_what_went_while_nobody_listened_is_told_when_the_watch_goes_on(server: Server, kube: Kube) -> None:
    kube.apply(config_map("vanishes", server.namespace, a="1"))
    events: list[Event] = []
    stream = kube.watch("ConfigMap", namespace=server.namespace, labels={"app": "vanishes"}, timeout_s=20)
    events.append(next(stream))
    server.control(faults=[{"kind": "throttle", "times": 1, "action": "watch.*"}])
    kube.delete("ConfigMap", "vanishes", namespace=server.namespace)
    events.append(next(stream))
    assert [event.type for event in events] == ["ADDED", "DELETED"]


@pytest.mark.parametrize("kind", ["throttle", "5xx", "lost"])
def test_reads_and_applies_are_made_again_until_the_server_is_well(
    server: Server, kube: Kube, kind: str
) -> None:
    server.control(faults=[{"kind": kind, "times": 1}])
    kube.apply(config_map("again", server.namespace, a=kind))
    server.control(faults=[{"kind": kind, "times": 1}])
    found = kube.get("ConfigMap", "again", namespace=server.namespace)
    assert found is not None
    assert found["data"] == {"a": kind}


def test_a_create_is_not_made_again_where_it_may_have_had_its_effect(server: Server, kube: Kube) -> None:
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


def test_a_token_that_is_not_accepted_is_told_with_its_remedy(server: Server, tmp_path: Path) -> None:
    if not _is_json(server.kubeconfig):
        pytest.skip("the kubeconfig of a real server is not ours to change")
    with _kubeconfig(tmp_path, server, token="wrong").connect() as kube, pytest.raises(DeniedError) as caught:  # noqa: S106 - the point of the test
        kube.list("Pod")
    assert "does not accept our credentials (401)" in caught.value.message
    assert "log in" in (caught.value.remedy or "")


def test_a_credentials_command_that_fails_is_told_in_its_own_words(server: Server, tmp_path: Path) -> None:
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
    assert "says: no" in caught.value.message


def test_a_server_whose_certificate_nobody_vouches_for_is_not_spoken_with(
    server: Server, tmp_path: Path
) -> None:
    if not _is_json(server.kubeconfig):
        pytest.skip("the kubeconfig of a real server is not ours to change")
    document = json.loads(Path(server.kubeconfig).read_text(encoding="utf-8"))
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document), encoding="utf-8")
    stranger = Server(kubeconfig=str(path), context=server.context)
    with stranger.connect() as kube, pytest.raises(UnreachableError, match="is not trusted"):
        kube.list("Pod")


def test_a_kubeconfig_without_the_context_tells_which_there_are(server: Server) -> None:
    with pytest.raises(PreflightError, match="no context 'elsewhere'"):
        server.connect(context="elsewhere")


def test_an_address_where_nobody_listens_is_told_within_seconds(tmp_path: Path) -> None:
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
        with Kube.connect(target, patience_s=0.5) as kube, pytest.raises(UnreachableError) as caught:
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
