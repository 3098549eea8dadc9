"""Containers are processes of this machine with their own view."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.kubernetes.support_nodes import (
    Cluster,
    conditions,
    job,
    pod,
    running,
    service,
    state,
    wait,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


def _ended(cluster: Cluster, name: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        pod = cluster.pod(name)
        return pod if pod["status"].get("phase") in ("Succeeded", "Failed") else None

    ended: dict[str, Any] = wait(found, what=f"the end of {name}")
    return ended


def _printed(cluster: Cluster, name: str) -> None:
    """Wait until it runs and has printed something."""
    wait(lambda: "running" in state(cluster.pod(name)) and cluster.log(name), what=f"a word of {name}")


def _output(cluster: Cluster, name: str, script: str, **spec: Any) -> str:
    cluster.apply(pod(name, "sh", "-c", script, **spec))
    _ended(cluster, name)
    return cluster.log(name)


def test_a_container_has_the_user_of_its_pod_and_no_access_to_this_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "secret").touch()
    script = f"id -u; id -g; hostname; echo $PPID; touch /x && echo wrote; ls {tmp_path}/secret /etc/passwd"
    context = {"runAsUser": 12345, "runAsGroup": 54321, "runAsNonRoot": True}
    lines = _output(cluster, "who", script, securityContext=context).splitlines()
    assert lines[:4] == ["12345", "54321", "who", "0"]
    assert "wrote" not in lines
    assert "/etc/passwd" in lines
    assert f"{tmp_path}/secret" not in lines


def test_a_root_file_system_is_read_only_if_the_pod_requests_it(cluster: Cluster) -> None:
    script = "touch /usr/x /etc/x /tmp/x /opt/x; touch /work/x /var/y/x && echo volumes"
    text = _output(
        cluster,
        "frozen",
        script,
        volumes=[
            {"name": "work", "emptyDir": {}},
            {"name": "y", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
        container={
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "y", "mountPath": "/var/y"}],
        },
    )
    assert text.count("Read-only file system") == 4
    assert text.endswith("volumes\n")


def test_variables_and_files_come_from_the_sources_of_the_pod(cluster: Cluster) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "words"},
            "data": {"a": "one", "b": "two"},
        }
    )
    text = _output(
        cluster,
        "informed",
        "echo $NAME $NODE $CPUS $BOTH; cat /etc/words/a /etc/info/labels; ls /etc/words",
        labels={"team": "red"},
        volumes=[
            {"name": "words", "configMap": {"name": "words"}},
            {
                "name": "info",
                "downwardAPI": {
                    "items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels['team']"}}]
                },
            },
        ],
        container={
            "env": [
                {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "b"}}},
                {"name": "BOTH", "value": "$(NAME)-$(B)-$$(B)"},
            ],
            "resources": {"requests": {"cpu": "1"}},
            "volumeMounts": [
                {"name": "words", "mountPath": "/etc/words", "readOnly": True},
                {"name": "info", "mountPath": "/etc/info"},
            ],
        },
    )
    node = cluster.pod("informed")["spec"]["nodeName"]
    assert text == f"informed {node} 1 informed-two-$(B)\noneredab\n".replace("ab\n", "a\nb\n")


def test_pods_of_a_service_find_each_other_by_name(cluster: Cluster) -> None:
    cluster.apply(service("pair"))
    program = (
        "import os, socket, time\n"
        "own = socket.gethostbyname(socket.gethostname())\n"
        "if os.environ['JOB_COMPLETION_INDEX'] == '0':\n"
        "    server = socket.create_server((own, 29400))\n"
        "    print(server.accept()[0].recv(9).decode())\n"
        "else:\n"
        "    while True:\n"  # the other pod may start much later
        "        try:\n"
        "            socket.create_connection(('pair-0.pair', 29400)).sendall(b'hello')\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.05)\n"
    )
    cluster.apply(job("pair", "python", "-c", program, pods=2))
    wait(lambda: "Complete" in conditions(cluster.job("pair")), what="the end of the job")
    first = next(pod for pod in cluster.pods(run="pair") if pod["metadata"]["name"].startswith("pair-0-"))
    assert cluster.log(first["metadata"]["name"]) == "hello\n"
    assert cluster.job("pair")["status"]["completedIndexes"] == "0,1"


def test_terminations_are_reported_with_exit_code_and_message(cluster: Cluster) -> None:
    cluster.apply(pod("fails", "sh", "-c", "echo why > /dev/termination-log; exit 65"))
    cluster.apply(pod("absent", "no-such-program"))
    hungry = {"resources": {"limits": {"memory": "64Mi"}}}
    eat = "x = b'x' * (200 << 20)\nimport time\ntime.sleep(30)"
    cluster.apply(pod("hungry", "python", "-c", eat, container=hungry))
    ended = state(_ended(cluster, "fails"))["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (65, "Error", "why\n")
    ended = state(_ended(cluster, "absent"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]
    ended = state(_ended(cluster, "hungry"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_init_containers_run_first_and_sidecars_run_until_the_end(cluster: Cluster) -> None:
    shared = {"volumeMounts": [{"name": "s", "mountPath": "/s"}]}

    def container(name: str, script: str, **more: Any) -> dict[str, Any]:
        image = "registry.example.com/team/cloudrec-trainer:1"
        return {"name": name, "image": image, "command": ["sh", "-c", script], **shared, **more}

    side = "trap 'echo side ended >> /s/log; exit 0' TERM; echo side >> /s/log; while :; do sleep 0.05; done"
    text = _output(
        cluster,
        "order",
        "until grep -q side /s/log; do sleep 0.02; done; cat /s/log",
        volumes=[{"name": "s", "emptyDir": {}}],
        initContainers=[
            container("first", "echo first >> /s/log"),
            container("side", side, restartPolicy="Always"),
        ],
        container=shared,
    )
    assert text == "first\nside\n"
    assert state(cluster.pod("order"), "side")["terminated"]["exitCode"] == 0


def test_a_failed_container_is_restarted_at_once_and_then_with_backoff(cluster: Cluster) -> None:
    cluster.apply(pod("again", "sh", "-c", "echo try; exit 1", restartPolicy="OnFailure"))
    wait(lambda: "CrashLoopBackOff" in str(state(cluster.pod("again"))), what="the back-off")
    status = cluster.pod("again")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert cluster.log("again", previous=True) == "try\n"
    cluster.control(advance_s=10)
    wait(lambda: cluster.pod("again")["status"]["containerStatuses"][0]["restartCount"] == 2, what="a start")


def test_a_rule_restarts_a_container_in_its_pod_and_other_codes_end_it(cluster: Cluster) -> None:
    # The pod's own policy is Never. Its volumes stay; the second start ends with a code without a rule.
    script = "echo x >>/data/starts; [ $(wc -l </data/starts) = 1 ] && exit 137; exit 4"
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [137, 139]}}
    spec = {
        "container": {
            "restartPolicy": "Never",
            "restartPolicyRules": [rule],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    cluster.apply(pod("ruled", "sh", "-c", script, **spec))
    (status,) = _ended(cluster, "ruled")["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert status["state"]["terminated"]["exitCode"] == 4


def test_a_deleted_pod_is_not_restarted_by_its_rules(cluster: Cluster) -> None:
    rule = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}
    rules = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    cluster.apply(pod("leaving", "sh", "-c", "trap 'exit 7' TERM; echo on; sleep 60 & wait", container=rules))
    _printed(cluster, "leaving")
    cluster.delete("/api/v1/namespaces/default/pods/leaving")
    wait(lambda: "leaving" not in {each["metadata"]["name"] for each in cluster.pods()}, what="its end")


def test_a_deleted_pod_gets_sigterm_and_is_killed_after_the_grace_period(cluster: Cluster) -> None:
    cluster.apply(pod("polite", "sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    cluster.apply(pod("deaf", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    for name in ("polite", "deaf"):
        _printed(cluster, name)
        cluster.core.delete_namespaced_pod(name, "default", grace_period_seconds=1)
    wait(lambda: not {"polite", "deaf"} & _names(cluster), what="their end", timeout_s=5)


def test_an_image_pull_error_has_the_message_of_the_registry(cluster: Cluster) -> None:
    cluster.control(images={"registry.example.com/secret/cloudrec": "private"})
    cluster.apply(pod("private", "true", container={"image": "registry.example.com/secret/cloudrec:1"}))
    cluster.apply(pod("missing", "true", container={"image": "ghcr.io/nobody/nothing:1"}))
    wait(lambda: "401 Unauthorized" in str(state(cluster.pod("private"))), what="the refusal")
    wait(lambda: "nothing:1: not found" in str(state(cluster.pod("missing"))), what="the refusal")
    cluster.control(advance_s=2)
    wait(lambda: "ImagePullBackOff" in str(state(cluster.pod("missing"))), what="the back-off")
    assert "Error: ImagePullBackOff" in cluster.events("Failed")
    cluster.control(images={"ghcr.io/nobody/nothing": "present"}, advance_s=20)
    wait(lambda: cluster.pod("missing")["status"]["phase"] == "Succeeded", what="the run")


def test_a_log_is_followed_until_the_container_ends(cluster: Cluster) -> None:
    cluster.apply(pod("talks", "sh", "-c", "for n in 1 2 3 4 5; do echo $n; sleep 0.1; done"))
    wait(lambda: "running" in state(cluster.pod("talks")), what="a start")
    reply = cluster.core.read_namespaced_pod_log("talks", "default", follow=True, _preload_content=False)
    assert reply.read().decode() == "1\n2\n3\n4\n5\n"
    assert cluster.log("talks", tail_lines=2) == "4\n5\n"


def test_pods_have_separate_ports_and_can_reach_services_of_this_machine(cluster: Cluster) -> None:
    if not cluster.pods_have_networks():
        pytest.skip("only root may make networks; pods share this machine's")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = (
            "import socket\n"
            "server = socket.create_server(('', 29400))\n"
            f"near = socket.create_connection(('127.0.0.1', {port}))\n"
            f"near.sendall(b'hello')  # to http://127.0.0.1:{port}\n"
            "print(near.recv(3).decode(), open('/sys/class/net/eth0/mtu').read())\n"
        )
        for name in ("one", "two"):
            cluster.apply(pod(name, "python", "-c", program))
        connections = [server.accept()[0] for _ in range(2)]
        for connection in connections:
            assert connection.recv(5) == b"hello"
            connection.sendall(b"yes")
        for name in ("one", "two"):
            assert _ended(cluster, name)["status"]["phase"] == "Succeeded"
            assert cluster.log(name).split() == ["yes", "1500"]
        for connection in connections:
            connection.close()


def _names(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods()}
