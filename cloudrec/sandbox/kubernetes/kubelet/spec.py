"""What a container is to be, of its pod's words: identity, rights, mounts, command."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudrec
from cloudrec.sandbox.kubernetes.kubelet.container.kernel import CAPABILITIES
from cloudrec.sandbox.kubernetes.kubelet.environment import expand_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.sandbox.kubernetes.kubelet.devices import Sight

IMAGE_USER = 10001  # whom the image names where the pod does not
_IMAGE_SOURCES = "/usr/local/lib/cloudrec"
_PACKAGES = ("cloudrec", "trainer", "templates")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMES_FROM = "passwd: files\ngroup: files\nhosts: files\n"
_DEFAULT_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE",
    "NET_RAW", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP",
)  # fmt: skip


class ConfigError(Exception):
    """The container cannot be as its pod wants it (CreateContainerConfigError)."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a container finds that its own words do not say."""

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
    """The spec that `container` runs, but for its root folder; ConfigError where there is none."""
    context = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    uid = int(context.get("runAsUser", IMAGE_USER))
    if context.get("runAsNonRoot") and uid == 0:
        raise ConfigError("container's runAsUser breaks non-root policy")
    gid = int(context.get("runAsGroup", 0 if "runAsUser" in context else uid))
    groups = [*(context.get("supplementalGroups") or ())]
    if "fsGroup" in context:
        groups.append(context["fsGroup"])
    command = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not command:
        raise ConfigError("no command specified")
    environment = {
        "PATH": f"{sys.prefix}/bin:{_SYSTEM_PATH}",
        "HOSTNAME": around.hostname,
        "HOME": "/root" if uid == 0 else "/",
        "PYTHONPATH": _IMAGE_SOURCES,
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
        "mounts": [*_image_mounts(), *_own_mounts(container, around), *around.mounts],
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
    return name.upper().removeprefix("CAP_")


def _image_mounts() -> list[dict[str, Any]]:
    """Python with its packages where it is, and our own packages where the image has them."""
    folders = {Path(folder) for folder in (sys.prefix, sys.base_prefix)}
    sources = Path(cloudrec.__file__).resolve().parent.parent
    packages = [
        (sources / name, f"{_IMAGE_SOURCES}/{name}") for name in _PACKAGES if (sources / name).is_dir()
    ]
    shown = [(folder, str(folder)) for folder in folders if not _is_system(folder)]
    return [
        {"source": str(source), "target": target, "read_only": True} for source, target in [*shown, *packages]
    ]


def _is_system(folder: Path) -> bool:
    return any(folder.is_relative_to(system) for system in ("/usr", "/opt", "/nix"))


def _own_lookups(around: Surroundings) -> list[dict[str, Any]]:
    """Where a pod has a network of its own, no server of names is on it: all names are in the hosts file."""
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
