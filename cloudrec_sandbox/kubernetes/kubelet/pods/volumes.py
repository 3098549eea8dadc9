"""A pod's volumes as folders of this machine, from which containers get their mounts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.pods.environment import contents, expand, field, resource_field
from cloudrec_sandbox.kubernetes.objects.quantities import amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FILE_MODE = 0o644
_KUBELETS = "/var/lib/kubelet/"  # a folder that every node has for itself


class VolumeError(Exception):
    """A volume cannot be mounted yet; the message is the kubelet's."""


class Volumes:
    """The volumes of one pod."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        *,
        folder: Path,
        shared: Path,
        find: Callable[[str, str], Mapping[str, Any] | None],
        node: Mapping[str, Any],
        token: Callable[[Mapping[str, Any], Mapping[str, Any]], str],
    ) -> None:
        """Store the arguments.

        Args:
            pod: the pod.
            folder: the folder for the pod's own volumes.
            shared: the folder for volumes that outlive it: claims, folders of drivers and of the
                node.
            find: returns an object of its namespace, by plural and name.
            node: the node.
            token: returns a service account's token for a pod and a projected source.
        """
        self._pod = pod
        self._folder = folder
        self._shared = shared
        self._find = find
        self._node = node
        self._token = token
        self._paths: dict[str, Path] = {}
        self._sizes: dict[str, int] = {}
        self._texts: list[str] = []

    def prepare(self) -> None:
        """Make the volumes that do not exist yet; VolumeError for the first that fails."""
        for volume in self._pod["spec"].get("volumes") or ():
            name = volume["name"]
            if name not in self._paths and name not in self._sizes:
                self._make(name, volume)

    def mounts(self, container: Mapping[str, Any], environment: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return a container's mounts."""
        found = []
        for mount in container.get("volumeMounts") or ():
            name, target = mount["name"], mount["mountPath"]
            if name in self._sizes:
                found.append({"target": target, "size": self._sizes[name]})
                continue
            path = self._paths[name]
            below = expand(mount.get("subPathExpr") or "", environment) or mount.get("subPath") or ""
            if below:
                path = path / below
                if not path.exists():
                    _open_folder(path)
            found.append({"target": target, "source": str(path), "read_only": bool(mount.get("readOnly"))})
        return found

    def texts(self) -> list[str]:
        """Return the texts in files from ConfigMaps, Secrets and pods' fields."""
        return self._texts

    def remove(self) -> None:
        """Remove the pod's own volumes."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self, name: str, volume: Mapping[str, Any]) -> None:
        path = self._folder / name
        if "emptyDir" in volume:
            wish = volume["emptyDir"] or {}
            # A memory volume of several containers must be a folder: a tmpfs is mounted in one only.
            if wish.get("medium") == "Memory" and self._users(name) == 1:
                self._sizes[name] = int(amount(wish.get("sizeLimit") or 0))
                return
            _open_folder(path)
        elif "hostPath" in volume:
            path = self._host_path(name, volume["hostPath"])
        elif "persistentVolumeClaim" in volume:
            path = self._claim(volume["persistentVolumeClaim"]["claimName"])
        elif "csi" in volume:
            text = json.dumps(volume["csi"], sort_keys=True)
            path = self._shared / "csi" / hashlib.sha256(text.encode()).hexdigest()[:16]
            _open_folder(path)
        else:
            self._write_files(name, volume, path)
        self._paths[name] = path

    def _users(self, name: str) -> int:
        spec = self._pod["spec"]
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        return sum(
            any(mount["name"] == name for mount in each.get("volumeMounts") or ()) for each in containers
        )

    def _host_path(self, name: str, wish: Mapping[str, Any]) -> Path:
        """Return this machine's path if it exists; else one in the node's folder."""
        path, kind = str(wish["path"]), wish.get("type") or ""
        real = Path(path)
        if real.exists():
            return real
        own = self._shared / "nodes" / str(self._node["metadata"]["name"]) / path.lstrip("/")
        if own.is_file() and kind in ("", "File", "FileOrCreate"):
            return own
        if kind in ("", "DirectoryOrCreate") or own.exists() or path.startswith(_KUBELETS):
            _open_folder(own)
            return own
        if kind == "FileOrCreate":
            _open_folder(own.parent)
            own.touch()
            return own
        what = {"Directory": "directory", "File": "file", "Socket": "socket file"}.get(kind, kind)
        raise VolumeError(
            f'MountVolume.SetUp failed for volume "{name}" : '
            f"hostPath type check failed: {path} is not a {what}"
        )

    def _claim(self, name: str) -> Path:
        claim = self._find("persistentvolumeclaims", name)
        if claim is None:
            raise VolumeError(f'persistentvolumeclaim "{name}" not found')
        volume = claim.get("spec", {}).get("volumeName")
        if claim.get("status", {}).get("phase") != "Bound" or not volume:
            raise VolumeError(f'persistentvolumeclaim "{name}" is not bound')
        path = self._shared / "volumes" / str(volume)
        _open_folder(path)
        return path

    def _write_files(self, name: str, volume: Mapping[str, Any], path: Path) -> None:
        kind = next(each for each in volume if each != "name")
        wish = volume[kind]
        sources = wish.get("sources") or () if kind == "projected" else [{kind: wish}]
        files: dict[str, tuple[bytes, int]] = {}
        mode = wish.get("defaultMode") or _FILE_MODE
        for source in sources:
            for each, (data, own) in self._files_of(name, source).items():
                files[each] = (data, own or mode)
        _open_folder(path)
        path.chmod(0o755)
        for each, (data, bits) in files.items():
            file = path / each
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            self._texts.append(data.decode(errors="replace"))
            file.chmod(bits)
            self._give_to_group(file, bits)

    def _give_to_group(self, file: Path, bits: int) -> None:
        group = (self._pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None and os.getuid() == 0:
            os.chown(file, 0, int(group))
            file.chmod(bits | 0o040)

    def _files_of(self, name: str, source: Mapping[str, Any]) -> dict[str, tuple[bytes, int]]:
        if "downwardAPI" in source:
            return {each["path"]: self._downward(each) for each in source["downwardAPI"].get("items") or ()}
        if "serviceAccountToken" in source:
            wish = source["serviceAccountToken"]
            return {wish["path"]: (self._token(self._pod, wish).encode(), 0)}
        plural, wish = self._entries_of(name, source)
        key = wish.get("secretName") or wish.get("name") or ""
        obj = self._find(plural, key)
        if obj is None:
            if wish.get("optional"):
                return {}
            raise VolumeError(
                f'MountVolume.SetUp failed for volume "{name}" : {plural[:-1]} "{key}" not found'
            )
        entries = contents(obj)
        if "items" not in wish:
            return {each: (data, 0) for each, data in entries.items()}
        found = {}
        for item in wish["items"]:
            if item["key"] not in entries:
                raise VolumeError(
                    f'MountVolume.SetUp failed for volume "{name}" : references non-existent config key: '
                    f"{item['key']}"
                )
            found[item["path"]] = (entries[item["key"]], item.get("mode") or 0)
        return found

    @staticmethod
    def _entries_of(name: str, source: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        for kind, plural in (("configMap", "configmaps"), ("secret", "secrets")):
            if kind in source:
                return plural, source[kind] or {}
        raise VolumeError(
            f'MountVolume.SetUp failed for volume "{name}" : no volume plugin matched: {", ".join(source)}'
        )

    def _downward(self, item: Mapping[str, Any]) -> tuple[bytes, int]:
        if "fieldRef" in item:
            return field(self._pod, item["fieldRef"]["fieldPath"]).encode(), item.get("mode") or 0
        reference = item["resourceFieldRef"]
        containers = self._pod["spec"]["containers"]
        container = next(each for each in containers if each["name"] == reference["containerName"])
        return resource_field(reference, container, self._node).encode(), item.get("mode") or 0


def _open_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
