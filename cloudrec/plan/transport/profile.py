"""A transport profile: everything a pod needs so that its GPUs talk over the fabric that the node has.

A profile is data (profiles.yaml); this is its shape. Manifests place its values, the start check in the pod
asserts what it expects, and each setting can tell why it is there and who says so.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations when it fills these
from dataclasses import dataclass, field
from types import MappingProxyType

UNPRIVILEGED = 10001  # the user and the group that pods run as


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One environment variable, with the reason for its value.

    Attributes:
        name: the variable.
        value: its value.
        reason: what it does here.
        source: who says so.
    """

    name: str
    value: str
    reason: str
    source: str


@dataclass(frozen=True, kw_only=True)
class HostPath:
    """A folder of the node that a container sees.

    Attributes:
        name: the volume's name within the pod; one name is one volume, whichever containers mount it.
        path: where it is on the node.
        mount: where the container sees it.
        kind: what must be there: Directory, DirectoryOrCreate; empty to check nothing.
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
        image: repository and tag, of the version that the plug-in is paired with.
        command: what it runs.
        environment: its variables.
        capabilities: what it needs beyond an unprivileged container; it runs as root.
        host_paths: what it sees of the node.
        ready: the command that succeeds once it is ready; empty without one.
        ready_s: seconds until then at the most.
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
    """What the check at the start of a pod must find, or the node is not fit.

    Attributes:
        devices: globs of device files, each of which must match something.
        cards: the glob of files or folders, one for each card of the fabric; empty without such a thing.
        minimum_cards: how many it must match at least.
        interfaces: network interfaces that must be there.
        mtu: the smallest MTU of those interfaces, in bytes; 0 to ask for none.
        memlock: bytes that a process must be able to pin: -1 for all it wants, 0 to ask for nothing.
        hugepages_2mi: free huge pages of 2 MiB that the pod must see; 0 to ask for none.
        kernel_modules: what must be loaded on the node.
        files: files that must be there, such as a plug-in's library.
        nccl_log: regular expression that a line of NCCL's log (INIT, NET) must match once ranks have met.
        nccl_fallback: regular expression of the line that tells that NCCL chose something slower.
    """

    devices: tuple[str, ...] = ()
    cards: str = ""
    minimum_cards: int = 0
    interfaces: tuple[str, ...] = ()
    mtu: int = 0
    memlock: int = 0
    hugepages_2mi: int = 0
    kernel_modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    nccl_log: str = ""
    nccl_fallback: str = ""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one family of machines needs for one fabric; sane and empty where nothing is needed.

    Attributes:
        name: the profile's own name, such as aws-p5.
        fabric: efa, infiniband, tcpx, tcpxo, tcp, none.
        settings: the environment of every process, with reasons; `environment` is the mapping.
        card_resource: what a device plugin calls one card; empty where pods need not ask for cards.
        cards: cards of the fabric that a whole node has.
        resources: what a pod asks for beside GPUs and cards, by resource name: hugepages-2Mi.
        shm_gib: size of /dev/shm, in memory.
        user: the user (and group) that the trainer's container runs as.
        capabilities: what it needs beyond an unprivileged container.
        host_paths: what it sees of the node.
        sidecars: daemons beside it.
        annotations: of the pod, whatever networks it is in.
        default_interface: the pod's own network interface, where a pod is in several networks.
        script: a script that is sourced before the trainer starts; empty without one.
        expects: what the start check must find.
        addons: what the cluster must have installed for it, by the add-ons' names.
        libraries: the versions that the settings hold for, by library.
        sources: who says so, for all that is not a setting.
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

    def pod_resources(self, gpus: int, cards: int | None = None) -> dict[str, str]:
        """Return what a pod that has a whole node asks for.

        Args:
            gpus: GPUs of the node.
            cards: cards of the fabric, where somebody knows better than the profile.
        """
        asked = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        count = self.cards if cards is None else cards
        if self.card_resource and count:
            asked |= {self.card_resource: str(count), **self.resources}
        return asked
