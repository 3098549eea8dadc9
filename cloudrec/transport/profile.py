"""The types of a transport profile: the values by which a pod's GPUs use the fabric of their node.

profiles.yaml has the profiles. Manifests contain their values, and the check at the start of a pod compares
the node with `Expected`. Each setting has its reason and its source.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations when it fills these
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

HUGE_PAGES = "hugepages-2Mi"  # Kubernetes' name of the resource
UNPRIVILEGED = 10001  # the user and the group that pods run as


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One environment variable, with the reason for its value.

    Attributes:
        name: the variable.
        value: its value.
        reason: why it has this value.
        source: the source of the reason.
    """

    name: str
    value: str
    reason: str
    source: str


@dataclass(frozen=True, kw_only=True)
class HostPath:
    """A folder of the node that a container mounts.

    Attributes:
        name: the volume's name in the pod; containers that use the same name share one volume.
        path: the path on the node.
        mount: the path in the container.
        kind: the hostPath type: Directory, DirectoryOrCreate; empty for no check.
        read_only: whether the container may only read it.
    """

    name: str
    path: str
    mount: str
    kind: str = ""
    read_only: bool = True


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """A daemon beside the trainer: an init container that is restarted always, so that it ends with the pod.

    Attributes:
        name: the container's name.
        image: repository and tag, of the version that matches the plug-in.
        command: its command.
        environment: its variables.
        capabilities: Linux capabilities that it needs; it runs as root.
        host_paths: the folders of the node that it mounts.
        ready: the command that succeeds once it is ready; empty without one.
        ready_s: the limit in seconds until it is ready.
    """

    name: str
    image: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    host_paths: tuple[HostPath, ...] = ()
    ready: tuple[str, ...] = ()
    ready_s: int = 120


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The values that the check at the start of a pod requires of the node.

    Attributes:
        devices: glob patterns of device files, each of which must match a file.
        cards: the glob pattern of files or folders, one for each card of the fabric; empty to check none.
        minimum_cards: the number of matches that `cards` needs.
        ports: the RDMA ports that must be active: `infiniband` for as many InfiniBand ports as
            `minimum_cards`, `all` for every port of the node; empty to check none.
        interfaces: network interfaces that must exist.
        mtu: the smallest MTU of those interfaces, in bytes; 0 to check none.
        memlock: bytes that a process must be able to pin: -1 for no limit, 0 to check nothing.
        optmem: bytes that a socket may have besides its buffers (net.core.optmem_max); 0 to check nothing.
        hugepages_2mi: number of free huge pages of 2 MiB; 0 to check none.
        gpu_memory: whether the cards must be able to read and write GPU memory, by nvidia_peermem or DMA-BUF.
        gpu_direct: whether NCCL must report GPUDirect RDMA for each card, so that no copy passes the CPU.
        plugin: the name of NCCL's plug-in for the fabric; empty if NCCL needs none.
        nccl_version: bounds of NCCL's version, such as >=2.17.1; empty to check none.
        files: files that must exist, such as a plug-in's library.
        nccl_log: regular expression that a line of NCCL's log (INIT, NET) must match.
        nccl_fallback: regular expression of the line by which NCCL reports a slower transport.
    """

    devices: tuple[str, ...] = ()
    cards: str = ""
    minimum_cards: int = 0
    ports: Literal["", "infiniband", "all"] = ""
    interfaces: tuple[str, ...] = ()
    mtu: int = 0
    memlock: int = 0
    optmem: int = 0
    hugepages_2mi: int = 0
    gpu_memory: bool = False
    gpu_direct: bool = False
    plugin: str = ""
    nccl_version: str = ""
    files: tuple[str, ...] = ()
    nccl_log: str = ""
    nccl_fallback: str = ""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The requirements of one family of machines for one fabric. The defaults are for machines without any.

    Attributes:
        name: the profile's name, such as aws-p5.
        fabric: efa, infiniband, tcpx, tcpxo, tcp, none.
        settings: the environment of every process, with reasons; `environment` is the mapping.
        card_resource: the resource name of a card of the fabric; empty if pods request no cards.
        cards: number of cards of the fabric in a node.
        resources: a pod's requests besides GPUs and cards, by resource name: hugepages-2Mi.
        shm_gib: size of /dev/shm in GiB.
        user: the user id and group id of the trainer's container.
        capabilities: Linux capabilities that the container needs.
        host_paths: folders of the node that the container mounts.
        sidecars: daemons beside the container.
        annotations: annotations of the pod, besides those of its networks.
        default_interface: the pod's main network interface, if it has several networks.
        script: a script that is sourced before the trainer starts; empty without one.
        expects: the values that the check at the start requires.
        addons: names of the add-ons that the cluster needs.
        libraries: the versions of libraries for which the settings are valid, by name.
        sources: the sources of the values that are no settings.
    """

    name: str
    fabric: str
    settings: tuple[Setting, ...] = ()
    card_resource: str = ""
    cards: int = 0
    resources: Mapping[str, str] = field(default_factory=dict)
    shm_gib: int = 8
    user: int = UNPRIVILEGED
    capabilities: tuple[str, ...] = ()
    host_paths: tuple[HostPath, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    default_interface: str = ""
    script: str = ""
    expects: Expected = field(default_factory=Expected)
    addons: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of every process of a run."""
        return MappingProxyType({each.name: each.value for each in self.settings})

    def pod_resources(
        self, gpus: int, cards: int | None = None, huge_pages_mib: int | None = None
    ) -> dict[str, str]:
        """Return the resource requests of a pod that uses a whole node.

        Args:
            gpus: GPUs of the node.
            cards: cards of the fabric; None for the profile's number.
            huge_pages_mib: huge pages of 2 MiB that the machine has for a pod; None for the profile's.
        """
        requests = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        count = self.cards if cards is None else cards
        if self.card_resource and count:
            requests |= {self.card_resource: str(count), **self.resources}
            if huge_pages_mib:
                requests[HUGE_PAGES] = f"{huge_pages_mib}Mi"
        return requests
