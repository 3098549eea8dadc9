"""What each of our own add-on templates may place; everything else in them is as upstream has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cloudrec.manifests.rendering import Context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Labelled(Context):
    """What every object of an add-on has.

    Args:
        labels: whose it is.
    """

    folder: ClassVar[str] = "addons/"

    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class OnNodes(Labelled):
    """A pod on each GPU node.

    Args:
        node_selector: labels of the GPU nodes; None for all nodes.
    """

    node_selector: Mapping[str, str] | None


@dataclass(frozen=True, kw_only=True)
class NvidiaDevicePlugin(OnNodes):
    """Makes GPUs allocatable.

    Args:
        image: the plugin's.
    """

    image: str


@dataclass(frozen=True, kw_only=True)
class EfaDevicePlugin(OnNodes):
    """Makes EFA adapters allocatable.

    Args:
        image: the plugin's.
    """

    image: str


@dataclass(frozen=True, kw_only=True)
class RdmaDeviceConfig(Labelled):
    """Which cards are InfiniBand's.

    Args:
        config: the text of the plugin's configuration.
    """

    config: str


@dataclass(frozen=True, kw_only=True)
class RdmaDevicePlugin(OnNodes):
    """Makes InfiniBand cards allocatable.

    Args:
        image: the plugin's.
        digest: of its configuration.
    """

    image: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class NvidiaPeermem(OnNodes):
    """Loads the module through which cards reach GPUs' memory.

    Args:
        loader: image with a shell and nsenter.
        pause: image that does nothing.
    """

    loader: str
    pause: str


@dataclass(frozen=True, kw_only=True)
class TcpxInstaller(OnNodes):
    """Puts the GPUDirect-TCPX plug-in onto nodes.

    Args:
        installer: image with the plug-in.
        pause: image that does nothing.
    """

    installer: str
    pause: str


@dataclass(frozen=True, kw_only=True)
class TcpxoInstaller(OnNodes):
    """Puts the GPUDirect-TCPXO plug-in onto nodes.

    Args:
        loader: image with a shell and nsenter.
        installer: image with the plug-in.
        pause: image that does nothing.
    """

    loader: str
    installer: str
    pause: str


@dataclass(frozen=True, kw_only=True)
class NriDeviceInjector(OnNodes):
    """Gives containers the devices that their pods' annotations name.

    Args:
        loader: image with a shell and nsenter.
        injector: the injector's.
    """

    loader: str
    injector: str


@dataclass(frozen=True, kw_only=True)
class GkeNetwork(Labelled):
    """A network that pods can be in.

    Args:
        name: its name in the cluster.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class GkeNetworkParameters(Labelled):
    """Which network of Google's it is.

    Args:
        name: its name in the cluster.
        network: the network's.
        subnetwork: the subnetwork's.
    """

    name: str
    network: str
    subnetwork: str


@dataclass(frozen=True, kw_only=True)
class StaticStorageClass(Labelled):
    """What volumes and claims of ours have in common, so that no other class takes the claims.

    Args:
        name: its name.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class PersistentVolume(Labelled):
    """A bucket or a file system that is there already.

    Args:
        name: its name.
        namespace: where runs live.
        claim: what of theirs stands for it.
        storage_class: what both are of.
        driver: the CSI driver's name.
        handle: what that knows it by.
        capacity: its size, as far as Kubernetes wants to be told.
        attributes: what the driver is told.
        mount_options: how it is mounted; None for the driver's own way.
    """

    name: str
    namespace: str
    claim: str
    storage_class: str
    driver: str
    handle: str
    capacity: str
    attributes: Mapping[str, str]
    mount_options: Sequence[str] | None


@dataclass(frozen=True, kw_only=True)
class PersistentVolumeClaim(Labelled):
    """What pods of runs name to mount a volume.

    Args:
        name: its name.
        namespace: where runs live.
        storage_class: what both are of.
        volume: the volume's name.
        capacity: as the volume's.
    """

    name: str
    namespace: str
    storage_class: str
    volume: str
    capacity: str
