"""The prerequisites of a real image build: a local base image, and this machine's package index."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
BASE = "localhost/base:bookworm"
_PYTORCH = "download.pytorch.org"
_INSIDE = "/opt/host"  # the path of this machine's files in the build
_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host", "timeout")


@dataclass(frozen=True)
class Store:
    """Buildah's images, stored in one folder that is deleted with the test."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables that point buildah to this folder."""
        return {**os.environ, "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf")}

    def make(self) -> None:
        """Copies whole layers, since not every machine supports overlays."""
        lines = ["[storage]", 'driver = "vfs"', f'runroot = "{self.folder}/run"']
        (self.folder / "storage.conf").write_text(
            "\n".join([*lines, f'graphroot = "{self.folder}/graph"', ""])
        )

    def buildah(self, *words: str) -> str:
        """Run buildah."""
        done = subprocess.run(
            ["buildah", *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def config(self, image: str) -> dict[str, Any]:
        """An image's OCI configuration."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", image))
        return dict(found["OCIv1"]["config"])


def make_base(store: Store) -> None:
    """Create a Debian bookworm image with debootstrap, without a registry."""
    root = store.folder / "base"
    command = ["debootstrap", "--variant=minbase", "bookworm", str(root), _debian()]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    container = store.buildah("from", "scratch")
    store.buildah("add", container, str(root), "/")
    store.buildah("commit", "--rm", container, BASE)


def _debian() -> str:
    """The Debian mirror of this machine's apt."""
    for file in sorted(Path("/etc/apt").rglob("*")):
        if file.suffix in {".list", ".sources"}:
            for found in re.findall(r"https?://\S+", file.read_text(errors="replace")):
                if urlsplit(found).path.rstrip("/").endswith("/debian"):
                    return str(found)
    return "http://deb.debian.org/debian"


def build_flags(folder: Path) -> tuple[Path, list[str]]:
    """A pip.conf derived from this machine's, and buildah's flags that mount the files that it names."""
    told = _pip_settings()
    mounts: dict[str, str] = {}
    lines = ["[global]"]
    if cert := told.get("cert"):
        # At another path, since Debian's package of certificates writes to the usual one.
        mounts[cert] = f"{_INSIDE}/certificates.crt"
        lines.append(f"cert = {mounts[cert]}")
    lines += [
        f"{key} = {' '.join(_inside(word, mounts) for word in told[key].split())}"
        for key in _KEYS
        if key in told
    ]
    conf = folder / "pip.conf"
    conf.write_text("\n".join([*lines, ""]))
    # Without cached layers, each of which would copy all layers below it.
    flags = ["--isolation", "chroot", "--network", "host", "--layers=false", "--rm=false"]
    flags += [word for source, target in mounts.items() for word in ("--volume", f"{source}:{target}:ro")]
    try:
        socket.getaddrinfo(_PYTORCH, 443)
    except OSError:
        flags += ["--build-arg", "TORCH_CPU_INDEX="]
    return conf, flags


def _pip_settings() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(global|user|site|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE)
    found.sort(key=lambda row: row[0] == ":env:")  # the environment takes precedence
    return {key: value.replace("\\n", " ") for _, key, value in found}


def _inside(word: str, mounts: dict[str, str]) -> str:
    """The path in the build of a location that pip's configuration names."""
    path = word.removeprefix("file://")
    if not path.startswith("/"):
        return word
    source = (
        str(Path(path).parent) if word.startswith("file://") else path
    )  # its links refer to neighbouring files
    mounts.setdefault(source, f"{_INSIDE}/{len(mounts)}")
    return word.replace(source, mounts[source], 1)


_LOCKED_UP = """
set -eu
root=$1; data=$2; shift 2
touch "$root/etc/hosts"
mount --bind "$root" "$root"
mount --bind /etc/hosts "$root/etc/hosts"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o uid=10001,gid=10001 tmpfs "$root/cloudrec"
cp -r "$data" "$root/cloudrec/data"
mkdir "$root/cloudrec/home"
chown -R 10001:10001 "$root/cloudrec"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec /usr/sbin/chroot --userspec=10001:10001 "$root" /usr/bin/env --ignore-environment "$@"
"""


def run_locked_up(
    root: str, data: Path, environment: list[str], program: str
) -> subprocess.CompletedProcess[str]:
    """Run a shell program in an image as a pod would: its user, a read-only root, /cloudrec to write."""
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", _LOCKED_UP, "sh", root, str(data)]
    return subprocess.run(
        [*command, *environment, "sh", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
