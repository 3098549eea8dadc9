"""The init container of a pod whose image has Python alone: it installs packages and cloudrec's code.

The pod's own container differs in one way: PATH begins with the environment that the init container made.
That is on the pod's work volume, so the image's root stays read-only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.kubernetes.manifests.environment import WORK, check, entries, literal
from cloudrec.kubernetes.manifests.templates.pods import Container, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.kubernetes.client.target import PodSetup
    from cloudrec.kubernetes.manifests.workload import Workload

NAME = "setup"  # of the init container
_VOLUME, _FOLDER = "code", "/etc/cloudrec-code"
_TARGET = f"{WORK}/python"
_SYSTEM = "/usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHORT = 16  # digits of the digest in the name: 64 bits
RESOURCES = {"cpu": "1", "memory": "4Gi"}
_TRAINERS = ("trainer", "parquet", "ray")  # parts of the list that only pods that train need
_CODE_MODE = 0o444
_INDEX = "PIP_INDEX_URL"


def code_name(digest: str) -> str:
    """Return the name of the ConfigMap with the code of this digest."""
    return f"cloudrec-code-{digest[:_SHORT]}"


def urls(workload: Workload) -> Mapping[str, str]:
    """Return the variables with the addresses that a run's pods reach, the package index among them."""
    return {**workload.environment, **urls_of(workload.setup)}


def urls_of(setup: PodSetup | None) -> Mapping[str, str]:
    """Return the variable with the address of the package index; none if it uses pip's default."""
    return {_INDEX: setup.index} if setup is not None and setup.index else {}


def light(setup: PodSetup | None) -> PodSetup | None:
    """Return what a pod installs that only looks: the clients of stores, without the trainer."""
    if setup is None:
        return None
    return replace(setup, extras=tuple(each for each in setup.extras if each not in _TRAINERS))


def with_setup(
    pod: Pod,
    setup: PodSetup | None,
    environment: Mapping[str, str],
    *,
    resources: Mapping[str, str] = RESOURCES,
) -> Pod:
    """Return a pod that installs first what it needs; the pod itself if its image has everything.

    Args:
        pod: the pod; its containers mount the volume `work`.
        setup: what it installs.
        environment: the user's variables, such as a proxy's, which the installation needs too.
        resources: requests and limits of the installation.
    """
    if setup is None:
        return pod
    check(urls_of(setup))
    variables = {name: literal(value) for name, value in environment.items() if name != "PATH"}
    init = Container(
        name=NAME,
        image=pod.containers[0].image,
        command=("python3", "-I", f"{_FOLDER}/bootstrap.py"),
        args=_arguments(setup),
        environment=entries(
            {
                "HOME": f"{WORK}/home",
                "PYTHONUNBUFFERED": "1",
                **urls_of(setup),
                **variables,
            }
        ),
        ports=None,
        requests=resources,
        limits=resources,
        lifecycle=None,
        capabilities=None,
        mounts=[
            {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True},
            {"name": "work", "mountPath": WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod
        ],
    )
    volume = {
        "name": _VOLUME,
        "configMap": {"name": code_name(setup.digest), "defaultMode": _CODE_MODE},
    }
    return replace(
        pod,
        sidecars=[init, *(pod.sidecars or ())],
        containers=[_found(each) for each in pod.containers],
        volumes=[*pod.volumes, volume],
    )


def _arguments(setup: PodSetup) -> Sequence[str]:
    extras = [word for extra in setup.extras for word in ("--extra", extra)]
    return ["--code", _FOLDER, "--digest", setup.digest, "--target", _TARGET, *extras]


def _found(container: Container) -> Container:
    """Return a container that finds the programs of the environment first."""
    own = {
        "PATH": f"{_TARGET}/bin:{_SYSTEM}",
        # As the Dockerfile sets it for an image with the trainer.
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    given = {each["name"] for each in container.environment}
    added = entries({name: value for name, value in own.items() if name not in given})
    return replace(container, environment=[*added, *container.environment])
