"""The environment that the training operator gives the replicas of a PyTorchJob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT_NAME = "pytorchjob-port"
CONTAINER = "pytorch"
_PORT = 23456


def variables(job: Mapping[str, Any], role: str, index: int) -> list[dict[str, str]]:
    """Return the variables that are added to each container of a replica.

    Args:
        job: the PyTorchJob.
        role: Master or Worker.
        index: the replica's number within its role.
    """
    spec = job["spec"]
    replicas = spec["pytorchReplicaSpecs"]
    found = {"PYTHONUNBUFFERED": "1"}
    elastic = spec.get("elasticPolicy")
    processes = str(spec.get("nprocPerNode") or "auto")
    if "Master" in replicas:
        rank = index + 1 if role == "Worker" else index
        found |= _of_master(job, rank, processes)
    if elastic is not None:
        found |= _of_elastic(job, elastic, processes)
    return [{"name": name, "value": value} for name, value in found.items()]


def port_of(replica: Mapping[str, Any]) -> int:
    """Return the port of a replica, from its container's named port."""
    for container in replica["template"]["spec"]["containers"]:
        for port in container.get("ports") or ():
            if container["name"] == CONTAINER and port.get("name") == PORT_NAME:
                return int(port["containerPort"])
    return _PORT


def _of_master(job: Mapping[str, Any], rank: int, processes: str) -> dict[str, str]:
    replicas = job["spec"]["pytorchReplicaSpecs"]
    total = sum(int(each.get("replicas", 1)) for each in replicas.values())
    host, port = f"{job['metadata']['name']}-master-0", str(port_of(replicas["Master"]))
    each = int(processes) if processes.isdigit() else 1
    return {
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": host,
        "PET_MASTER_ADDR": host,
        "WORLD_SIZE": str(total * each),
        "RANK": str(rank),
        "PET_NPROC_PER_NODE": processes,
        "PET_NODE_RANK": str(rank),
        "PET_NNODES": str(total),
    }


def _of_elastic(job: Mapping[str, Any], policy: Mapping[str, Any], processes: str) -> dict[str, str]:
    worker = job["spec"]["pytorchReplicaSpecs"].get("Worker") or {}
    host = policy.get("rdzvHost") or f"{job['metadata']['name']}-worker-0"
    port = policy.get("rdzvPort") or port_of(worker)
    least, most = policy.get("minReplicas"), policy.get("maxReplicas")
    replicas = worker.get("replicas", 1)
    found = {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": policy.get("rdzvBackend") or "c10d",
        "PET_NNODES": str(replicas)
        if least is None and most is None
        else f"{least or replicas}:{most or replicas}",
        "PET_NPROC_PER_NODE": str(policy.get("nProcPerNode") or processes),
    }
    if policy.get("maxRestarts") is not None:
        found["PET_MAX_RESTARTS"] = str(policy["maxRestarts"])
    if policy.get("rdzvId"):
        found["PET_RDZV_ID"] = policy["rdzvId"]
    if policy.get("rdzvConf"):
        found["PET_RDZV_CONF"] = ",".join(f"{each['key']}={each['value']}" for each in policy["rdzvConf"])
    if policy.get("standalone"):
        found["PET_STANDALONE"] = ""
    return found
