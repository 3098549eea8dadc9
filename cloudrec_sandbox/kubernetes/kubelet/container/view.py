"""A container's view of the file system: this machine's programs, no users' files, the pod's volumes.

The programs and libraries (`/usr`, `/etc`, ...) are shown through overlays, so that nothing written reaches
this machine. Python's own folders are shown at their own paths, even inside a user's folder, which stays
hidden otherwise.
"""

from __future__ import annotations

import os
from typing import Any

from cloudrec_sandbox.kubernetes.kubelet.container import kernel

_SYSTEM = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/sbin", "/usr")
_FOLDERS = ("/home", "/mnt", "/proc", "/root", "/run", "/srv", "/sys", "/var", "/var/log", "/dev")
_OPEN_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 - the container's own
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_SHM = "size=67108864,mode=1777"  # 64 MiB, the default of container runtimes


class View:
    """The container's root, built once in its own mount namespace; `enter` makes it the root directory."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._root: str = spec["root"]
        self._scratch = self._root + ".scratch"
        self._mounts = _mount_points()
        self._own: list[str] = []
        self._layers = 0

    def build(self) -> None:
        """Build it; OSError names what could not be mounted."""
        # Private first: mounts made here must not appear on this machine.
        kernel.mount("", "/", "", kernel.REC | kernel.PRIVATE)
        self._tmpfs(self._root, "mode=755")
        self._own.append(self._root)
        os.makedirs(self._scratch, exist_ok=True)  # noqa: PTH103 - pathlib takes time to import
        self._tmpfs(self._scratch, "mode=755")
        for folder in _FOLDERS:
            os.makedirs(self._root + folder, exist_ok=True)  # noqa: PTH103
        for folder in _OPEN_FOLDERS:
            os.makedirs(self._root + folder, exist_ok=True)  # noqa: PTH103
            os.chmod(self._root + folder, 0o1777)  # noqa: PTH101, S103 - the usual mode of these folders
        for path in _SYSTEM:
            if os.path.lexists(path):
                self._show(path)
        self._show_devices()
        self._show_sys()
        # Without root, the kernel allows a new /proc only while another one is visible.
        if not self._spec["is_root"]:
            self._bind("/proc", self._root + kernel.OUTER_PROC, is_read_only=False)
        for mount in sorted(self._spec["mounts"], key=lambda each: str(each["target"])):
            self._mount(mount)
        if self._spec["read_only_root"]:
            for target in self._own:
                kernel.read_only(target)

    def enter(self) -> None:
        """Make it the root directory."""
        kernel.pivot_root(self._root)

    def _tmpfs(self, target: str, options: str) -> None:
        kernel.mount("tmpfs", target, "tmpfs", kernel.NOSUID, options)

    def _show(self, path: str) -> None:
        """Show a file or folder of this machine; writes stay in the container."""
        target = self._root + path
        if os.path.islink(path):  # noqa: PTH114
            os.symlink(os.readlink(path), target)  # noqa: PTH115, PTH211
        elif not os.path.isdir(path):  # noqa: PTH112
            self._bind(path, target)
        # An overlay shows only one file system, so a folder with mounts inside is shown entry by entry.
        elif any(mount.startswith(path + "/") for mount in self._mounts):
            os.makedirs(target, exist_ok=True)  # noqa: PTH103
            for name in os.listdir(path):  # noqa: PTH208
                self._show(f"{path}/{name}")
        else:
            os.makedirs(target, exist_ok=True)  # noqa: PTH103
            self._overlay(path, target)

    def _overlay(self, path: str, target: str) -> None:
        self._layers += 1
        upper, work = (f"{self._scratch}/{self._layers}{side}" for side in "uw")
        os.mkdir(upper)  # noqa: PTH102
        os.mkdir(work)  # noqa: PTH102
        try:
            kernel.mount("overlay", target, "overlay", 0, f"lowerdir={path},upperdir={upper},workdir={work}")
        except OSError:  # a file system that cannot be a lower layer
            self._bind(path, target)
        else:
            self._own.append(target)

    def _bind(self, source: str, target: str, *, is_read_only: bool = True) -> None:
        self._make_point(source, target)
        kernel.mount(source, target, "", kernel.BIND | kernel.REC)
        if is_read_only:
            kernel.read_only(target, recursive=True)

    @staticmethod
    def _make_point(source: str, target: str) -> None:
        if os.path.lexists(target):
            return
        if os.path.isdir(source):  # noqa: PTH112
            os.makedirs(target)  # noqa: PTH103
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def _mount(self, mount: dict[str, Any]) -> None:
        """Mount a volume, or a folder of the image."""
        target = os.path.normpath(self._root + mount["target"])
        if "size" in mount:
            os.makedirs(target, exist_ok=True)  # noqa: PTH103
            size = f",size={mount['size']}" if mount["size"] else ""
            self._tmpfs(target, f"mode=1777{size}")
        else:
            self._bind(mount["source"], target, is_read_only=mount["read_only"])

    def _show_devices(self) -> None:
        folder = self._root + "/dev"
        self._tmpfs(folder, "mode=755")
        for name in ("pts", "shm"):
            os.mkdir(f"{folder}/{name}")  # noqa: PTH102
        self._tmpfs(f"{folder}/shm", _SHM)
        for name in _DEVICES:
            self._bind(f"/dev/{name}", f"{folder}/{name}", is_read_only=False)
        for name in self._spec["devices"]:
            self._bind("/dev/null", f"{folder}/{name}", is_read_only=False)
        for name, where in _LINKS.items():
            os.symlink(where, f"{folder}/{name}")  # noqa: PTH211
        try:
            kernel.mount("devpts", f"{folder}/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620")
        except OSError:  # a container works without terminals
            return

    def _show_sys(self) -> None:
        """Show /sys, with a class of InfiniBand cards if the pod has some."""
        target = self._root + "/sys"
        source = self._own_sys()
        cards: dict[str, dict[str, str]] = self._spec["infiniband"]
        if not cards:
            self._bind(source, target)
            return
        for parent in ("", "/class"):
            for name in os.listdir(source + parent):  # noqa: PTH208
                path = f"{parent}/{name}"
                if path not in ("/class", "/class/infiniband"):
                    self._bind_or_link(source + path, target + path)
        for card, files in cards.items():
            for name, text in files.items():
                path = f"{target}/class/infiniband/{card}/{name}"
                os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
                with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(text + "\n")

    def _own_sys(self) -> str:
        """Return a /sys that shows the container's own network, if it has one."""
        if self._spec["network"] is None:
            return "/sys"
        source = f"{self._scratch}/sys"
        os.mkdir(source)  # noqa: PTH102
        kernel.mount("sysfs", source, "sysfs", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
        return source

    def _bind_or_link(self, source: str, target: str) -> None:
        if os.path.islink(source):  # noqa: PTH114
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
            os.symlink(os.readlink(source), target)  # noqa: PTH115, PTH211
        else:
            self._bind(source, target)


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:  # noqa: PTH123
        return [line.split()[4] for line in file]
