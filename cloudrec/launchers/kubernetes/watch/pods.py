"""The pods of a run as this machine last saw them: only what has changed since is requested.

A list of a thousand pods has six megabytes, and a status is asked for every second. So a list is requested
once; its pods, trimmed to what a status needs, are kept in the run's folder, also for the next command.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cloudrec.home import read_text, write_atomically
from cloudrec.kubernetes.client.errors import ExpiredError
from cloudrec.launchers.kubernetes.submit import trainer_labels
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.launchers.base.run_folder import RunFolder

_FILE = "pods-seen.json"
_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
)
_STATUS = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")


class PodView:
    """The pods of one launch of a run.

    Args:
        run: the run's folder on this machine.
        namespace: the pods' namespace.
        launch: the number of the launch.
        cluster: the cluster that the pods are in.
    """

    def __init__(self, run: RunFolder, namespace: str, launch: int, *, cluster: str) -> None:
        self._run, self._namespace, self._launch, self._cluster = run, namespace, launch, cluster
        self._labels = trainer_labels(run.name, launch)
        self._pods: dict[str, dict[str, Any]] = {}  # by uid
        self._version = ""  # of the newest change that was read; empty if none was
        self._settled = ""  # the job's version at which all pods were seen to run
        self._read()

    def now(self, kube: Kube, job: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the pods; the server is asked for the changes since the last call, unless there are none.

        Args:
            kube: the cluster.
            job: the Job that makes the pods. Its status changes with each change of a pod that runs, so while
                all run and it is the same, nothing is requested. None if the pods are another kind's.
        """
        version = _settled_version(job)
        if not self._version or not version or version != self._settled:
            self._update(kube)
            all_run = all((pod.get("status") or {}).get("phase") == "Running" for pod in self._pods.values())
            settled = version if all_run else ""
            if settled != self._settled:
                self._settled = settled
                self._write()
        return list(self._pods.values())

    def _update(self, kube: Kube) -> None:
        """Read the changes, or the whole list if the server no longer has them."""
        if self._version:
            try:
                changes = kube.changes(
                    "Pod", since=self._version, namespace=self._namespace, labels=self._labels
                )
            except ExpiredError:
                self._version = ""
            else:
                for kind, pod in changes:
                    self._version = _applied(self._pods, kind, pod)
                if changes:
                    self._write()
                return
        found = kube.listing("Pod", namespace=self._namespace, labels=self._labels)
        self._pods = {pod["metadata"]["uid"]: _trimmed(pod) for pod in found.items}
        self._version = found.version
        self._write()

    def _read(self) -> None:
        try:
            kept = safe_object(read_text(self._run.path / _FILE))
            of = (self._launch, self._namespace, self._cluster)
            if (kept["launch"], kept["namespace"], kept["cluster"]) != of:
                return
            pods = {pod["metadata"]["uid"]: _trimmed(pod) for pod in kept["pods"]}
            self._version, self._settled, self._pods = str(kept["version"]), str(kept["settled"]), pods
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return  # no earlier look, or a damaged one, or one of another version

    def _write(self) -> None:
        document = {
            "launch": self._launch,
            "namespace": self._namespace,
            "cluster": self._cluster,
            "version": self._version,
            "settled": self._settled,
            "pods": list(self._pods.values()),
        }
        write_atomically(self._run.path / _FILE, json.dumps(document))


def _applied(pods: dict[str, dict[str, Any]], kind: str, pod: Mapping[str, Any]) -> str:
    """Apply a change to the pods; return its version."""
    metadata = pod["metadata"]
    uid = str(metadata["uid"])
    if kind == "DELETED":
        pods.pop(uid, None)
    else:
        pods[uid] = _trimmed(pod)
    return str(metadata["resourceVersion"])


def _settled_version(job: Mapping[str, Any] | None) -> str:
    """Return the version of a Job whose status says that all its pods run; empty for any other."""
    if job is None or job.get("kind") != "Job":
        return ""
    status, wanted = job.get("status") or {}, (job.get("spec") or {}).get("parallelism")
    is_settled = status.get("ready") == status.get("active") == wanted and not status.get("terminating")
    return str(job["metadata"].get("resourceVersion", "")) if is_settled else ""


def _trimmed(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod with only what a status needs."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    names = [{"name": each.get("name", "")} for each in (spec.get("containers") or [])[:1]]
    kept = {name: spec[name] for name in ("nodeName", "hostname") if name in spec}
    return {
        "metadata": {name: pod["metadata"][name] for name in _METADATA if name in pod["metadata"]},
        "spec": {**kept, "containers": names},
        "status": {name: status[name] for name in _STATUS if name in status},
    }
