"""Names of pods: the records of the cluster's DNS, written into the hosts file of each pod.

A pod that a Service selects has a name once it is ready, or at once if the Service publishes addresses that
are not ready. A pod's own name is always in its own file, as the kubelet writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.storage.mirror import is_over, is_true

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cloudrec_sandbox.kubernetes.storage.cluster import Cluster

_HEAD = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
_DOMAIN = "svc.cluster.local"


class Addresses:
    """Assigns an address to each pod."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._next = 0
        self._taken: set[str] = set()

    def take(self) -> str:
        """Return an address that no living pod has."""
        while True:
            self._next = self._next % 65000 + 1
            address = f"{self._prefix}.{self._next // 250}.{self._next % 250 + 1}"
            if address not in self._taken:
                self._taken.add(address)
                return address

    def give_back(self, address: str) -> None:
        """Free an address."""
        self._taken.discard(address)


class Names:
    """The hosts files of all pods that run here."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._files: dict[str, tuple[str, str, Path]] = {}  # by the pod's uid: namespace, head, path
        self._written: dict[str, str] = {}

    def add(self, pod: Mapping[str, Any], address: str, path: Path) -> None:
        """Keep a pod's file up to date from now on."""
        metadata, spec = pod["metadata"], pod["spec"]
        own = spec.get("hostname") or metadata["name"]
        full = (
            f"{own}.{spec['subdomain']}.{metadata['namespace']}.{_DOMAIN} " if spec.get("subdomain") else ""
        )
        aliases = "".join(
            f"{each['ip']}\t{' '.join(each.get('hostnames') or ())}\n"
            for each in spec.get("hostAliases") or ()
        )
        self._files[metadata["uid"]] = (
            metadata["namespace"],
            f"{_HEAD}{address}\t{full}{own}\n{aliases}",
            path,
        )
        path.write_text("", encoding="utf-8")
        path.chmod(0o644)
        self.write(metadata["uid"])

    def drop(self, uid: str) -> None:
        """Stop keeping a pod's file."""
        self._files.pop(uid, None)
        self._written.pop(uid, None)

    def write(self, only: str = "") -> None:
        """Update all files, or one pod's."""
        if not self._files:
            return
        with self._cluster.store.lock:
            records = list(self._records())
        for uid, (namespace, head, path) in list(self._files.items()):
            if only and uid != only:
                continue
            text = head + "".join(_line(namespace, *record) for record in records)
            if text != self._written.get(uid):
                self._written[uid] = text
                _overwrite(path, text)

    def _records(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield namespace, Service, hostname (or "") and address of each name."""
        for service in self._cluster.mirror.all("services"):
            selector = service["spec"].get("selector")
            if not selector:
                continue
            space, name = service["metadata"]["namespace"], service["metadata"]["name"]
            headless = service["spec"].get("clusterIP") == "None"
            for pod in self._cluster.mirror.selected(space, selector):
                if _is_published(pod, service):
                    address = pod["status"]["podIP"]
                    yield space, name, "", address
                    if headless and pod["spec"].get("hostname") and pod["spec"].get("subdomain") == name:
                        yield space, name, pod["spec"]["hostname"], address


def _overwrite(path: Path, text: str) -> None:
    """Write a file in place: containers have the file itself mounted, not its folder.

    It is truncated after the write. A pod that resolves a name meanwhile never reads an empty file.
    """
    content = text.encode()
    with path.open("r+b", buffering=0) as file:
        file.write(content)
        file.truncate(len(content))


def _is_published(pod: Mapping[str, Any], service: Mapping[str, Any]) -> bool:
    if not pod.get("status", {}).get("podIP") or is_over(pod):
        return False
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    return is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]


def _line(namespace: str, space: str, service: str, hostname: str, address: str) -> str:
    head = f"{hostname}.{service}" if hostname else service
    names = [f"{head}.{space}.{_DOMAIN}", f"{head}.{space}.svc", f"{head}.{space}"]
    if namespace == space:
        names.append(head)
    return f"{address}\t{' '.join(names)}\n"
