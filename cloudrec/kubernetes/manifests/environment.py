"""The environment variables of a pod: the run's, the transport's, and the user's, which override these."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec.errors import SpecError
from cloudrec.kubernetes import topology
from cloudrec.kubernetes.manifests.names import INDEX_LABEL
from cloudrec.transport import HUGE_PAGES
from cloudrec_contract.secret_values import is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

WORK = "/cloudrec"
GPUS = "nvidia.com/gpu"
_NAME = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*")
_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_UID": "metadata.uid",
    "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}


def indexed(address: str) -> dict[str, Any]:
    """Return the variables with the DNS name of a pod of an Indexed Job.

    Args:
        address: the name, with $(CLOUDREC_INDEX) for the pod's index.
    """
    return {"CLOUDREC_INDEX": _field(f"metadata.labels['{INDEX_LABEL}']"), "CLOUDREC_ADDRESS": address}


def run_environment(
    workload: Workload, target: ClusterTarget, profile: Profile, own: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the variables of a pod that trains.

    Args:
        workload: the run.
        target: the cluster.
        profile: the transport profile.
        own: the launcher's variables; a mapping as value is a reference (`valueFrom`).
    """
    check(workload.environment)
    script = profile.script or target.profile
    variables = {
        **{name: _field(path) for name, path in _FIELDS.items()},
        **own,
        "CLOUDREC_RUN": workload.run,
        "CLOUDREC_LAUNCH": str(workload.launch),
        "CLOUDREC_CLUSTER": workload.cluster,
        "CLOUDREC_RESULTS": workload.results,
        "CLOUDREC_FABRIC": target.fabric,
        "CLOUDREC_INSTANCE_TYPE": target.instance_type,
        "CLOUDREC_CARDS": target.resources.get(profile.card_resource, "0"),
        **_huge_pages(target),
        "CLOUDREC_GPUS": target.resources.get(GPUS, "0"),
        "CLOUDREC_ALLOW_TCP": "1" if workload.allow_tcp else "0",
        "CLOUDREC_MAX_RESTARTS": str(workload.max_restarts),
        "CLOUDREC_GRACE_S": str(workload.grace_s),
        **({"CLOUDREC_METRICS_PORT": str(workload.metrics_port)} if workload.metrics_port else {}),
        **({"CLOUDREC_START_TIMEOUT_S": str(workload.start_timeout_s)} if workload.start_timeout_s else {}),
        "CLOUDREC_WORK": WORK,
        **({"CLOUDREC_PROFILE": script} if script else {}),
        **({"CLOUDREC_TOPOLOGY": f"{topology.FOLDER}/{topology.FILE}"} if target.topology else {}),
        # The root file system is read-only, and libraries write caches to the home folder.
        "HOME": f"{WORK}/home",
        "PYTHONUNBUFFERED": "1",
        **profile.environment,
        **{name: literal(value) for name, value in workload.environment.items()},
        **workload.secrets,
    }
    return entries(variables)


def entries(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return variables as the list `env` of a container."""
    return [
        {"name": name, **({"valueFrom": value} if isinstance(value, dict) else {"value": str(value)})}
        for name, value in variables.items()
    ]


def literal(text: str) -> str:
    """Return a text with each $( escaped, so that Kubernetes does not replace $(NAME) in it."""
    return text.replace("$(", "$$(")


def check(environment: Mapping[str, str]) -> None:
    """Raise SpecError for a name that Kubernetes refuses, and for a secret: every reader of a pod sees it."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} cannot be the name of a pod's environment variable")
        if is_secret(name, value):
            raise SpecError(
                f"{name} looks like a secret, and every user that may read a pod can read its variables",
                remedy="give the permission to the pods' service account instead (workload identity)",
            )


def endpoint_ports(environment: Mapping[str, str]) -> list[int]:
    """Return the ports in the URLs of a user's variables, such as that of an object store."""
    found = set()
    for value in environment.values():
        if value.startswith(("http://", "https://")):
            parts = urlsplit(value)
            try:
                found.add(parts.port or (443 if parts.scheme == "https" else 80))
            except ValueError as error:
                raise SpecError(f"{value!r} is no URL: {error}") from error
    return sorted(found)


def _huge_pages(target: ClusterTarget) -> dict[str, str]:
    """Return the variable by which the check in the pod requires the huge pages that the pod requests."""
    requested = re.fullmatch(r"(\d+)Mi", target.resources.get(HUGE_PAGES, ""))
    return {"CLOUDREC_HUGEPAGES_MIB": requested[1]} if requested else {}


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}
