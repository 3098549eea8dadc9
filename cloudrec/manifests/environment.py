"""The variables of a pod: what a run is told of itself, the transport's, and the user's, which win."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec.errors import SpecError
from cloudrec.manifests.names import INDEX_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kube.target import Target
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

WORK = "/cloudrec"
GPUS = "nvidia.com/gpu"
_NAME = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*")
# A name that ends so is of a file, a place or a number, whatever else is in it.
_NO_SECRET = re.compile(r"(_FILE|_PATH|_DIR|_URI|_URL|_ENDPOINT|_NAME|_ID|_MODE|_PARALLELISM|_TOKENS)$")
_SECRET = re.compile(r"(SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|ACCESS_KEY|ACCOUNT_KEY|PRIVATE_KEY|CREDENTIAL)")
_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_UID": "metadata.uid",
    "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}


def indexed(address: str) -> dict[str, Any]:
    """Return the variables by which a pod of an Indexed Job knows its own name in DNS.

    Args:
        address: that name, with $(CLOUDREC_INDEX) in it.
    """
    return {"CLOUDREC_INDEX": _field(f"metadata.labels['{INDEX_LABEL}']"), "CLOUDREC_ADDRESS": address}


def run_environment(
    workload: Workload, target: Target, profile: Profile, own: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the variables of a pod that trains.

    Args:
        workload: the run.
        target: the cluster.
        profile: the transport's.
        own: what this launcher tells its pods; values that are mappings are references.
    """
    check(workload.environment)
    script = profile.script or target.profile
    told = {
        **{name: _field(path) for name, path in _FIELDS.items()},
        **own,
        "CLOUDREC_RUN": workload.run,
        "CLOUDREC_LAUNCH": str(workload.launch),
        "CLOUDREC_CLUSTER": workload.cluster,
        "CLOUDREC_RESULTS": workload.results,
        "CLOUDREC_FABRIC": target.fabric,
        "CLOUDREC_INSTANCE_TYPE": target.instance_type,
        "CLOUDREC_GPUS": target.resources.get(GPUS, "0"),
        "CLOUDREC_ALLOW_TCP": "1" if workload.allow_tcp else "0",
        "CLOUDREC_MAX_RESTARTS": str(workload.max_restarts),
        "CLOUDREC_GRACE_S": str(workload.grace_s),
        "CLOUDREC_WORK": WORK,
        **({"CLOUDREC_PROFILE": script} if script else {}),
        "HOME": f"{WORK}/home",
        "PYTHONUNBUFFERED": "1",
        **profile.environment,
        **{name: literal(value) for name, value in workload.environment.items()},
    }
    return entries(told)


def entries(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return variables as a container has them."""
    return [
        {"name": name, **({"valueFrom": value} if isinstance(value, dict) else {"value": str(value)})}
        for name, value in variables.items()
    ]


def literal(text: str) -> str:
    """Return a text that Kubernetes hands on as it is: it would replace $(NAME)."""
    return text.replace("$(", "$$(")


def check(environment: Mapping[str, str]) -> None:
    """Refuse variables that Kubernetes does not take, and secrets, which every reader of a pod would see."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name):
            raise SpecError(f"{name!r} cannot be the name of a pod's environment variable")
        if _is_secret(name, value):
            raise SpecError(
                f"{name} looks like a secret, and whoever may read a pod may read its variables",
                remedy="let the pods' service account stand for the permission (workload identity)",
            )


def endpoint_ports(environment: Mapping[str, str]) -> list[int]:
    """Return the ports of the services that a user's variables name by URL, such as a store of their own."""
    found = set()
    for value in environment.values():
        if value.startswith(("http://", "https://")):
            parts = urlsplit(value)
            try:
                found.add(parts.port or (443 if parts.scheme == "https" else 80))
            except ValueError as error:
                raise SpecError(f"{value!r} is no URL: {error}") from error
    return sorted(found)


def _is_secret(name: str, value: str) -> bool:
    if value.startswith(("http://", "https://")):
        return "@" in value.partition("://")[2].partition("/")[0]
    return bool(value) and bool(_SECRET.search(name.upper())) and not _NO_SECRET.search(name.upper())


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}
