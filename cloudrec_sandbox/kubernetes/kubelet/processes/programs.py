"""Images that are known by what they do: they do not run here, but their effects happen.

Device plugins make a node's hardware allocatable; installers end at once; operators, drivers and loaders run
until they are ended. An operator's controller (`controllers`) works while its program runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec_sandbox.kubernetes.kubelet.processes.process import Listener

GPU, EFA, RDMA = "gpu", "efa", "rdma"
_TERM, _KILL = 15, 9


@dataclass(frozen=True, kw_only=True)
class Program:
    """The effects of a known image."""

    plugin: str = ""  # the kind of hardware that it makes allocatable
    driver: str = ""  # the kind of hardware that needs the kernel modules that it loads
    operator: str = ""  # the operator whose controller works while it runs
    says: str = "started"


_PROGRAMS = {
    "nvidia/k8s-device-plugin": Program(plugin=GPU, says="Registered device plugin for 'nvidia.com/gpu'"),
    "eks/aws-efa-k8s-device-plugin": Program(
        plugin=EFA, says="Registered device plugin for vpc.amazonaws.com/efa"
    ),
    "mellanox/k8s-rdma-shared-dev-plugin": Program(
        plugin=RDMA, says="Starting K8s RDMA Shared Device Plugin"
    ),
    "mellanox/sriov-network-device-plugin": Program(plugin=RDMA, says="Starting SRIOV Network Device Plugin"),
    # The entrypoint of Mellanox/doca-driver-build builds and loads the modules of the node's own kernel.
    "mellanox/doca-driver": Program(driver=RDMA, says="All drivers loaded"),
    "kubeflow/training-operator": Program(operator="pytorchjob", says="starting manager"),
    "kubeflow/training-v1/training-operator": Program(operator="pytorchjob", says="starting manager"),
    "kubeflow/trainer/trainer-controller-manager": Program(operator="trainjob", says="starting manager"),
    "jobset/jobset": Program(operator="jobset", says="starting manager"),
    "kuberay/operator": Program(operator="rayjob", says="starting manager"),
}
_OTHERS = (
    "nvcr.io/nvidia/", "public.ecr.aws/eks/", "public.ecr.aws/hpc-cloud/", "602401143452.dkr.ecr.",
    "ghcr.io/kubeflow/", "ghcr.io/mellanox/", "registry.k8s.io/", "quay.io/kuberay/", "mcr.microsoft.com/",
    "us-docker.pkg.dev/gce-ai-infra/", "gcr.io/gke-release/", "gke.gcr.io/", "docker.io/kubeflow/",
)  # fmt: skip


# A tag of doca-driver ends with the distribution whose packages it installs on the node: NVIDIA's
# documentation of the Network Operator ("DOCA-OFED Driver Container Images") lists one for each.
_DISTRIBUTION = re.compile(r"-ubuntu(?P<release>[0-9]{2}\.[0-9]{2})-amd64$")


def release_of(image: str) -> str:
    """Return the Ubuntu release that a driver's image is for; empty if its tag names none."""
    found = _DISTRIBUTION.search(image.partition("@")[0])
    return found["release"] if found else ""


def program_of(image: str) -> Program | None:
    """Return the program that an image is known to be, or None."""
    name = image.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    repository = f"{head}{slash}{tail.partition(':')[0]}"
    for end, program in _PROGRAMS.items():
        if repository == end or repository.endswith("/" + end):
            return program
    return Program() if repository.startswith(_OTHERS) else None


class Simulated:
    """A container without a process: a known program, or any container of a simulated pod."""

    def __init__(
        self,
        listener: Listener,
        *,
        defer: Callable[[Callable[[], None]], None],
        says: Sequence[str] = (),
        ends_with: int | None = None,
        stops_with: int = 0,
        runs: Callable[[Sequence[str]], tuple[int, str]] | None = None,
    ) -> None:
        """Start it.

        Args:
            listener: is called for its changes, never from within a call of this class.
            defer: runs a step soon, in the kubelet's thread.
            says: lines of its output.
            ends_with: the exit code with which it ends at once; None if it runs until it is ended.
            stops_with: the exit code with which it ends on SIGTERM.
            runs: runs a command in it, such as a probe's; None to report success for any.
        """
        self._listener = listener
        self._defer = defer
        self._says = says
        self._ends_with = ends_with
        self._stops_with = stops_with
        self._runs = runs
        self._is_over = False
        defer(self._start)

    def signal(self, number: int) -> None:
        """End it."""
        if number in (_TERM, _KILL):
            self.end(self._stops_with if number == _TERM else 128 + _KILL)

    def end(self, code: int) -> None:
        """End it with an exit code."""
        self._defer(lambda: self._end(code))

    def execute(self, command: Sequence[str], done: Callable[[int, str], None]) -> None:
        """Run a command as `runs` does, or report success for any."""
        if self._runs is not None:
            runs = self._runs
            self._defer(lambda: done(*runs(command)))
        else:
            self._defer(lambda: done(0, f"{command[0]}: nothing runs here"))

    def kill(self) -> None:
        """End it without a report."""
        self._is_over = True

    def _start(self) -> None:
        if self._is_over:
            return
        self._listener.started(0)
        if self._says:
            self._listener.said("".join(line + "\n" for line in self._says).encode())
        if self._ends_with is not None:
            self._end(self._ends_with)

    def _end(self, code: int) -> None:
        if not self._is_over:
            self._is_over = True
            self._listener.ended(code)
