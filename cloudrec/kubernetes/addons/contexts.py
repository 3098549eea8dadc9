"""The values that each add-on template places; the rest of a template is as upstream publishes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Labelled(TemplateContext):
    """The values of every object of an add-on.

    Args:
        labels: the labels that name cloudrec, the cluster and the add-on.
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
    """The plugin that makes GPUs allocatable.

    Args:
        image: the plugin's image.
        affinity: the nodes with GPUs, where no node selector names them; None otherwise.
    """

    image: str
    affinity: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class EfaDevicePlugin(OnNodes):
    """The plugin that makes EFA adapters allocatable.

    Args:
        image: the plugin's image.
    """

    image: str


@dataclass(frozen=True, kw_only=True)
class DocaDriver(OnNodes):
    """Builds and loads the kernel modules of NVIDIA's network cards on nodes of one Ubuntu release.

    Args:
        image: the driver's image for that release.
        name: the DaemonSet's name, which ends with the release.
    """

    image: str
    name: str


@dataclass(frozen=True, kw_only=True)
class RdmaDeviceConfig(Labelled):
    """The configuration of the plugin for InfiniBand cards.

    Args:
        config: its text, JSON.
    """

    config: str


@dataclass(frozen=True, kw_only=True)
class RdmaDevicePlugin(OnNodes):
    """The plugin that makes InfiniBand cards allocatable.

    Args:
        image: the plugin's image.
        digest: the digest of its configuration, so that a change of it restarts the pods.
        loader: image with a shell.
        wait: command of that image, which ends once the cards' driver is loaded.
    """

    image: str
    digest: str
    loader: str
    wait: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class NvidiaPeermem(OnNodes):
    """Loads the kernel module nvidia-peermem, through which cards read and write GPU memory.

    Args:
        loader: image with a shell and nsenter.
    """

    loader: str


@dataclass(frozen=True, kw_only=True)
class DcgmExporter(OnNodes):
    """Serves the figures of a node's GPUs for Prometheus.

    Args:
        exporter: NVIDIA's image with DCGM and its exporter.
    """

    exporter: str


@dataclass(frozen=True, kw_only=True)
class FabricExporter(OnNodes):
    """Serves the counters of a node's InfiniBand and RoCE cards for Prometheus.

    Args:
        exporter: the image of node_exporter.
    """

    exporter: str


@dataclass(frozen=True, kw_only=True)
class PodMonitor(Labelled):
    """Names the pods that serve metrics, for an operator of Prometheus.

    Args:
        version: the apiVersion of the operator's kind.
        name: its name.
        namespace: its namespace.
        namespaces: the namespaces of the pods.
        selector: the label selector of the pods.
        port: the name of the port at which they serve metrics.
    """

    version: str
    name: str
    namespace: str
    namespaces: Sequence[str]
    selector: Mapping[str, Any]
    port: str


@dataclass(frozen=True, kw_only=True)
class PodMonitoring(Labelled):
    """Names the pods of its namespace that serve metrics, for GKE's Managed Service for Prometheus.

    Args:
        name: its name.
        namespace: its namespace, and that of the pods.
        selector: the label selector of the pods.
        port: the name of the port at which they serve metrics.
    """

    name: str
    namespace: str
    selector: Mapping[str, Any]
    port: str


@dataclass(frozen=True, kw_only=True)
class LocalDisks(OnNodes):
    """Joins the local disks of a node into one volume, and mounts it at a path of the node.

    Args:
        loader: image with a shell and nsenter.
        command: the container's command.
        probe: the command that succeeds once the volume is mounted.
    """

    loader: str
    command: Sequence[str]
    probe: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class TcpxInstaller(OnNodes):
    """Installs the GPUDirect-TCPX plug-in on nodes.

    Args:
        loader: image with a shell.
        installer: image with the plug-in.
        pause: image that does nothing.
    """

    loader: str
    installer: str
    pause: str


@dataclass(frozen=True, kw_only=True)
class TcpxoInstaller(OnNodes):
    """Installs the GPUDirect-TCPXO plug-in on nodes.

    Args:
        loader: image with a shell and nsenter.
        installer: image with the plug-in.
        pause: image that does nothing.
    """

    loader: str
    installer: str
    pause: str


@dataclass(frozen=True, kw_only=True)
class GibInstaller(OnNodes):
    """Installs gIB, NCCL's plug-in for RDMA over Ethernet, on nodes.

    Args:
        loader: image with a shell.
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
        injector: the injector's image.
    """

    loader: str
    injector: str


@dataclass(frozen=True, kw_only=True)
class GkeNetwork(Labelled):
    """The Network object of a network that pods can join.

    Args:
        name: its name in the cluster.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class GkeNetworkParameters(Labelled):
    """The GKENetworkParamSet of a Network object.

    Args:
        name: its name in the cluster.
        network: the name of the VPC network.
        subnetwork: the name of the subnetwork.
        mode: how pods get the card: NetDevice or RDMA.
    """

    name: str
    network: str
    subnetwork: str
    mode: str


@dataclass(frozen=True, kw_only=True)
class StaticStorageClass(Labelled):
    """The storage class of cloudrec's volumes and claims, so that no other class binds the claims.

    Args:
        name: its name.
    """

    name: str


@dataclass(frozen=True, kw_only=True)
class PersistentVolume(Labelled):
    """A volume for a bucket or a file system that exists already.

    Args:
        name: its name.
        namespace: the namespace of the runs.
        claim: the claim that is bound to it.
        storage_class: the storage class of both.
        driver: the CSI driver's name.
        handle: the driver's id of the bucket or file system.
        capacity: its size, which Kubernetes requires and does not enforce.
        attributes: the driver's parameters.
        mount_options: options for the mount; None for the driver's default.
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
    """The claim by which pods of runs mount a volume.

    Args:
        name: its name.
        namespace: the namespace of the runs.
        storage_class: the storage class of both.
        volume: the volume's name.
        capacity: the volume's capacity.
    """

    name: str
    namespace: str
    storage_class: str
    volume: str
    capacity: str


@dataclass(frozen=True, kw_only=True)
class QueueTopology(Labelled):
    """Kueue's Topology: the parts of the network that nodes are in.

    Args:
        name: its name.
        levels: the label of each part, the widest first.
    """

    name: str
    levels: Sequence[Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class ResourceFlavor(Labelled):
    """Kueue's ResourceFlavor: the nodes of one pool.

    Args:
        name: its name.
        node_labels: the labels of its nodes, which pods that are admitted to it get as node selector.
        tolerations: the tolerations that these pods get.
        topology: the name of its Topology; None without one.
    """

    name: str
    node_labels: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]
    topology: str | None


@dataclass(frozen=True, kw_only=True)
class ClusterQueue(Labelled):
    """Kueue's ClusterQueue: what the runs of one namespace can have of each flavor together.

    Args:
        name: its name.
        namespace: the namespace of the runs.
        resources: the names of the resources.
        flavors: the quota of each resource by flavor, in the order of `resources`.
    """

    name: str
    namespace: str
    resources: Sequence[str]
    flavors: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class LocalQueue(Labelled):
    """Kueue's LocalQueue, which runs name.

    Args:
        name: its name.
        namespace: the namespace of the runs.
        cluster_queue: the ClusterQueue behind it.
    """

    name: str
    namespace: str
    cluster_queue: str
