"""The control API."""

from __future__ import annotations

import http.client
import json

import pytest
from kubernetes import watch
from urllib3.exceptions import ProtocolError

from tests.sandbox.kubernetes.support import Kubernetes, config_map, refusal, status_of

MAPS = "/api/v1/namespaces/default/configmaps"


def test_a_throttled_call_has_a_retry_after_header(kube: Kubernetes) -> None:
    kube.control(faults=[{"kind": "throttle", "service": "core", "action": "list configmaps"}])
    status, headers, told = kube.raw("GET", MAPS)
    assert (status, headers["retry-after"], told["reason"]) == (429, "1", "TooManyRequests")
    assert told["details"]["retryAfterSeconds"] == 1
    kube.done("GET", MAPS)


def test_a_fault_can_have_any_status(kube: Kubernetes) -> None:
    kube.control(
        faults=[{"kind": "error", "action": "watch .*", "status": 410, "code": "Expired", "message": "old"}]
    )
    stream = watch.Watch().stream(kube.core.list_namespaced_config_map, "default", timeout_seconds=1)
    assert refusal(lambda: list(stream)).status == 410


def test_a_lost_response_comes_after_the_effect(kube: Kubernetes) -> None:
    kube.control(faults=[{"kind": "lost", "action": "create configmaps"}])
    with pytest.raises(http.client.RemoteDisconnected):
        kube.raw("POST", MAPS, config_map("one"))
    kube._connection.close()
    assert kube.core.read_namespaced_config_map("one", "default")


@pytest.mark.parametrize(("how", "last"), [("close", []), ("gone", [("ERROR", 410)]), ("drop", None)])
def test_running_watches_can_be_ended(kube: Kubernetes, how: str, last: list[tuple[str, int]] | None) -> None:
    kube.core.create_namespaced_config_map("default", config_map("one"))
    answer = kube.core.list_namespaced_config_map(
        "default", watch=True, timeout_seconds=30, _preload_content=False
    )
    lines = iter(answer)
    assert json.loads(next(lines))["type"] == "ADDED"
    kube.control(watches=how)
    if last is None:
        with pytest.raises(ProtocolError):
            list(lines)
    else:
        told = [json.loads(line) for line in lines]
        assert [(each["type"], each["object"]["code"]) for each in told] == last


def test_another_identity_is_another_cluster(kube: Kubernetes) -> None:
    def uid() -> str:
        found: str = kube.core.read_namespace("kube-system").metadata.uid
        return found

    before = uid()
    kube.control(reset=True)
    assert uid() == before
    kube.control(identity="re-created")
    assert uid() != before


def test_state_lists_objects_and_calls_lists_requests(kube: Kubernetes) -> None:
    since = len(kube.done("GET", "/_control/calls"))
    kube.core.create_namespaced_config_map("default", config_map("one"))
    assert kube.done("GET", "/_control/state") == {
        "existing": ["core:configmaps:default/one"],
        "pending": [],
    }
    (call,) = kube.done("GET", "/_control/calls", since=str(since))
    assert (call["service"], call["action"], call["status"]) == ("core", "create configmaps", 201)


def test_a_reset_keeps_the_default_objects(kube: Kubernetes) -> None:
    kube.done("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    kube.control(reset=True)
    names = [each.metadata.name for each in kube.core.list_namespace().items]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    error = refusal(kube.core.read_namespaced_service_account, "default", "team")
    assert status_of(error)["reason"] == "NotFound"


def test_a_cluster_with_real_processes_has_no_snapshots(kube: Kubernetes) -> None:
    status, _, told = kube.raw("POST", "/_control/save", {"name": "now"})
    assert (status, told["error"]) == (
        400,
        "containers are processes: a cluster cannot be saved, nor taken up again",
    )


def test_unknown_control_options_are_refused(kube: Kubernetes) -> None:
    for wish in ({"nonsense": 1}, {"watches": "loudly"}, {"tokens": [{"colour": "red", "user": "x"}]}):
        status, _, told = kube.raw("POST", "/_control", wish)
        assert (status, bool(told["error"])) == (400, True)
