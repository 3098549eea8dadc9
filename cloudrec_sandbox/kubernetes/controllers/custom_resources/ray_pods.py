"""The pods of a Ray cluster, as KubeRay makes them from its templates: each starts Ray and ends with it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects.quantities import amount
from cloudrec_sandbox.kubernetes.objects.table import copied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.kubernetes.storage.mirror import Object

HEAD, WORKER = "head", "worker"
HEAD_GROUP = "headgroup"
GCS_PORT, DASHBOARD_PORT = 6379, 8265
_AGENT_PORT = 52365
_CLUSTER, _TYPE, _GROUP = "ray.io/cluster", "ray.io/node-type", "ray.io/group"
_TOKEN_KEY = "auth_token"  # noqa: S105 - the name of a key


def selector(cluster: Object, kind: str) -> dict[str, str]:
    """Return the labels of a cluster's pods of one kind."""
    return {_CLUSTER: str(cluster["metadata"]["name"]), _TYPE: kind}


def head_service(cluster: Object) -> dict[str, Any]:
    """Return the Service for the head."""
    ports = (("gcs-server", GCS_PORT), ("dashboard", DASHBOARD_PORT), ("client", 10001))
    return {
        "metadata": {"name": f"{cluster['metadata']['name']}-head-svc"},
        "spec": {
            "clusterIP": "None",
            "selector": selector(cluster, HEAD),
            "ports": [{"name": name, "port": port} for name, port in ports],
            "publishNotReadyAddresses": True,
        },
    }


def has_token(cluster: Object) -> bool:
    """Return whether Ray requires a token of its clients."""
    return bool((cluster["spec"].get("authOptions") or {}).get("mode") == "token")


def token_secret(cluster: Object) -> dict[str, Any]:
    """Return the Secret with the token, which the operator makes."""
    return {
        "metadata": {"name": cluster["metadata"]["name"]},
        "type": "Opaque",
        "stringData": {_TOKEN_KEY: secrets.token_urlsafe(32)},
    }


def pod(cluster: Object, kind: str, group: str, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod for the head or for a group of workers."""
    template = copied(wish["template"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    name = cluster["metadata"]["name"]
    middle = HEAD if kind == HEAD else f"{group}-{WORKER}"
    labels = {
        **(metadata.get("labels") or {}),
        **selector(cluster, kind),
        _GROUP: group,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{name}-{kind}",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    container = spec["containers"][0]
    address = f"{name}-head-svc.{cluster['metadata']['namespace']}.svc.cluster.local"
    start = _start_command(kind, address, wish.get("rayStartParams") or {}, container)
    own = [*(container.get("command") or ()), *(container.get("args") or ())]
    container["command"] = ["/bin/bash", "-c", "--"]
    container["args"] = [f"{' '.join(own)} && {start}" if own else start]
    container["env"] = [*(container.get("env") or ()), *_variables(cluster, kind, address, start)]
    container.setdefault("readinessProbe", _probe())
    if kind == WORKER:
        spec["initContainers"] = [*(spec.get("initContainers") or ()), _wait_for(address, container)]
    return {
        "metadata": {
            "name": f"{name}-{middle}-{secrets.token_hex(3)[:5]}",
            "labels": labels,
            **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
        },
        "spec": spec,
    }


def _start_command(
    kind: str, address: str, parameters: Mapping[str, str], container: Mapping[str, Any]
) -> str:
    limits = (container.get("resources") or {}).get("limits") or {}
    wanted = {"metrics-export-port": "8080", "dashboard-agent-listen-port": str(_AGENT_PORT), **parameters}
    if "memory" in limits:
        wanted.setdefault("memory", str(int(amount(limits["memory"]))))
    if "cpu" in limits:
        wanted.setdefault("num-cpus", str(max(1, int(amount(limits["cpu"])))))
    if kind == HEAD:
        wanted.setdefault("dashboard-host", "0.0.0.0")  # noqa: S104 - on the pod's own network
        head = "--head"
    else:
        head = f"--address={address}:{GCS_PORT}"
    flags = " ".join(f"--{name}={value}" for name, value in sorted(wanted.items()) if name != "block")
    return f"ulimit -n 65536; ray start {head} {flags} --block"


def _variables(cluster: Object, kind: str, address: str, start: str) -> list[dict[str, Any]]:
    ray_address = f"127.0.0.1:{GCS_PORT}" if kind == HEAD else f"{address}:{GCS_PORT}"
    plain = {
        "RAY_CLUSTER_NAME": cluster["metadata"]["name"],
        "RAY_PORT": str(GCS_PORT),
        "RAY_ADDRESS": ray_address,
        "FQ_RAY_IP": address,
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
        "KUBERAY_GEN_RAY_START_CMD": start,
    }
    found: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in plain.items()]
    if has_token(cluster):
        key = {"name": cluster["metadata"]["name"], "key": _TOKEN_KEY}
        found.append({"name": "RAY_AUTH_MODE", "value": "token"})
        found.append({"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": key}})
    return found


def _probe() -> dict[str, Any]:
    """Return the probe of a Ray node: a command that requests the health of Ray's agent."""
    script = (
        f"exec 3<>/dev/tcp/127.0.0.1/{_AGENT_PORT}; "
        "printf 'GET /api/local_raylet_healthz HTTP/1.0\\r\\nAuthorization: Bearer %s\\r\\n\\r\\n' "
        '"${RAY_AUTH_TOKEN:-}" >&3; grep -q success <&3'
    )
    return {"exec": {"command": ["bash", "-c", script]}, "periodSeconds": 1, "failureThreshold": 10}


def _wait_for(address: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the init container that makes a worker wait until the head answers."""
    script = f"until (exec 3<>/dev/tcp/{address}/{GCS_PORT}) 2>/dev/null; do sleep 0.5; done"
    kept = ("image", "imagePullPolicy", "securityContext", "env")
    return {
        "name": "wait-gcs-ready",
        "command": ["/bin/bash", "-c", "--"],
        "args": [script],
        **{name: container[name] for name in kept if name in container},
    }
