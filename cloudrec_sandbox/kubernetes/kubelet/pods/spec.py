"""A container's spec, from its pod: identity, rights, mounts, command."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudrec
from cloudrec_sandbox.kubernetes.kubelet.container.kernel import CAPABILITIES
from cloudrec_sandbox.kubernetes.kubelet.node.images import is_base
from cloudrec_sandbox.kubernetes.kubelet.pods.environment import expand_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.kubernetes.kubelet.node.devices import Sight

IMAGE_USER = 10001  # the user in the image, if the pod sets none
_IMAGE_SOURCES = "/usr/local/lib/cloudrec"
_PACKAGES = ("cloudrec", "cloudrec_contract", "trainer", "templates")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMES_FROM = "passwd: files\ngroup: files\nhosts: files\n"
_DEFAULT_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE",
    "NET_RAW", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP",
)  # fmt: skip


class ConfigError(Exception):
    """The container's spec is impossible (CreateContainerConfigError)."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a container gets besides its own spec."""

    hostname: str
    hosts_file: Path
    termination_file: Path
    environment: Mapping[str, str]
    mounts: Sequence[Mapping[str, Any]]
    sight: Sight
    memlock: int | None
    network: int | None


def container_spec(
    pod: Mapping[str, Any], container: Mapping[str, Any], around: Surroundings
) -> dict[str, Any]:
    """Return the spec that `container` runs, without its root folder; ConfigError if it is impossible."""
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    uid = int(context.get("runAsUser", IMAGE_USER))
    if context.get("runAsNonRoot") and uid == 0:
        raise ConfigError("container's runAsUser breaks non-root policy")
    # As containerd does: without runAsGroup, a user that the pod sets is in the root group.
    gid = int(context.get("runAsGroup", 0 if "runAsUser" in context else uid))
    groups = [*(context.get("supplementalGroups") or ())]
    if "fsGroup" in context:
        groups.append(context["fsGroup"])
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not command:
        raise ConfigError("no command specified")
    bare = is_base(container["image"])
    environment = {
        "PATH": f"{sys.prefix}/bin:{_SYSTEM_PATH}",
        "HOSTNAME": around.hostname,
        "HOME": "/root" if uid == 0 else "/",
        # As an image that a user made, it has its packages: a pod reaches no package index here.
        **({"CLOUDREC_IMAGE_PACKAGES": "own"} if bare else {"PYTHONPATH": _IMAGE_SOURCES}),
        **around.environment,
    }
    return {
        "is_root": os.getuid() == 0,
        "hostname": around.hostname,
        "read_only_root": bool(context.get("readOnlyRootFilesystem")),
        "uid": uid,
        "gid": gid,
        "groups": groups,
        "capabilities": _capabilities(context),
        "no_new_privileges": context.get("allowPrivilegeEscalation") is False,
        "memlock": around.memlock,
        "network": around.network,
        "environment": environment,
        "workdir": container.get("workingDir") or "/",
        "command": expand_all(command, environment),
        "devices": list(around.sight.files),
        "infiniband": around.sight.cards,
        "mounts": [*_image_mounts(bare=bare), *_own_mounts(container, around), *around.mounts],
    }


def _capabilities(context: Mapping[str, Any]) -> list[str]:
    if context.get("privileged"):
        return list(CAPABILITIES)
    wish = context.get("capabilities") or {}
    dropped = {_bare(name) for name in wish.get("drop") or ()}
    added = {_bare(name) for name in wish.get("add") or ()}
    kept = set() if "ALL" in dropped else {*_DEFAULT_CAPABILITIES} - dropped
    return sorted(CAPABILITIES) if "ALL" in added else sorted(kept | added)


def _bare(name: str) -> str:
    # Pods name capabilities without the prefix that the kernel uses.
    return name.upper().removeprefix("CAP_")


def _image_mounts(*, bare: bool) -> list[dict[str, Any]]:
    """Return the mounts of Python and its packages at their own paths, and of cloudrec's own packages."""
    folders = {Path(folder) for folder in (sys.prefix, sys.base_prefix)}
    sources = Path(cloudrec.__file__).resolve().parent.parent
    packages = [
        (sources / name, f"{_IMAGE_SOURCES}/{name}")
        for name in (() if bare else _PACKAGES)
        if (sources / name).is_dir()
    ]
    shown = [(folder, str(folder)) for folder in folders if not _is_system(folder)]
    return [
        {"source": str(source), "target": target, "read_only": True} for source, target in [*shown, *packages]
    ]


def _is_system(folder: Path) -> bool:
    return any(folder.is_relative_to(system) for system in ("/usr", "/opt", "/nix"))


def _own_lookups(around: Surroundings) -> list[dict[str, Any]]:
    """Return the lookup configuration: a pod with its own network has no DNS server, only its hosts file."""
    if around.network is None:
        return []
    path = around.hosts_file.with_name("nsswitch.conf")
    path.write_text(_NAMES_FROM, encoding="utf-8")
    path.chmod(0o644)
    return [{"source": str(path), "target": "/etc/nsswitch.conf", "read_only": True}]


def _own_mounts(container: Mapping[str, Any], around: Surroundings) -> list[dict[str, Any]]:
    message = container.get("terminationMessagePath") or "/dev/termination-log"
    return [
        {"source": str(around.hosts_file), "target": "/etc/hosts", "read_only": False},
        {"source": str(around.termination_file), "target": message, "read_only": False},
        *_own_lookups(around),
    ]
