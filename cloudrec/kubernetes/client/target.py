"""The values of a Kubernetes cluster that a run needs: its address, and its GPU nodes' requirements for pods.

A provider's `KubernetesAccess` has a `ClusterTarget`. A run's spec.json keeps it, so that any process can
find the cluster on which the run was launched, and check that it is still the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic reads them
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

POD_SECURITY = "pod-security.kubernetes.io/enforce"  # the label with a namespace's Pod Security Standard
DEAD_NODE = "cloudrec/dead-node"  # the annotation of a pod that may be ended where its node is dead
LEVELS = ("restricted", "baseline", "privileged")  # Pod Security Standards, the strictest first


def pod_security(fabric: str) -> str:
    """Return the Pod Security Standard that a namespace needs for the pods of a fabric.

    Host folders, daemons and capabilities need "privileged".
    """
    from cloudrec.transport import profiles  # noqa: PLC0415 - `status` and `logs` read no profile

    needs_privileges = any(
        profile.capabilities or profile.host_paths or profile.sidecars
        for profile in profiles()
        if profile.fabric == fabric
    )
    return "privileged" if needs_privileges else "restricted"


@dataclass(frozen=True, kw_only=True)
class PodSetup:
    """What a pod installs before it starts, in an image that has Python alone.

    Attributes:
        digest: the SHA-256 of cloudrec's code and of the list of packages, which the cluster has.
        extras: the parts of the list that it installs.
        index: URL of the package index; empty for pip's default.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    digest: str
    extras: tuple[str, ...] = ()
    index: str = ""


@dataclass(frozen=True, kw_only=True)
class CardNetwork:
    """The network of a node's further network card, as GKE's objects and the pods' annotations name it.

    Attributes:
        interface: the interface in a pod: eth1.
        network: the network, by its name or path.
        subnetwork: the subnetwork, by its name or path.
        name: the name of the cluster's Network object; the network's name when empty.
        mode: how a pod gets the card: as a network device, or as an RDMA device with its network device.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    interface: str
    network: str
    subnetwork: str
    name: str = ""
    mode: Literal["NetDevice", "RDMA"] = "NetDevice"

    @property
    def object_name(self) -> str:
        """The name of the cluster's Network object."""
        return self.name or self.network.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class DeviceClaim:
    """Devices that pods claim by dynamic resource allocation, in place of a device plugin's resource.

    Attributes:
        resource: the resource that a device plugin would give for each: nvidia.com/gpu.
        device_class: the DeviceClass that a claim names.
        driver: the driver that lists them.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    resource: str
    device_class: str
    driver: str


@dataclass(frozen=True, kw_only=True)
class ClusterTarget:
    """A cluster, as launchers and manifests need it; every value is plain JSON.

    Attributes:
        kubeconfig: path of the private kubeconfig.
        context: the context in it.
        namespace: the namespace of runs.
        service_account: the service account of their pods.
        identity: uid of the namespace kube-system, which no two clusters share; empty before it was read.
        fabric: the network between nodes' GPUs: efa, infiniband, tcpx, tcpxo, tcp; none without GPUs.
        instance_type: the cloud's name for the GPU nodes' machine; empty on adopted clusters.
        resources: requests of a pod that uses a whole GPU node, GPUs and fabric cards, by resource name.
        claims: which of these pods claim by dynamic resource allocation instead.
        cpus: virtual cores of a node that trains, of which pods request a share; 0 if they are not known.
        memory_gib: memory of a node that trains, in GiB, likewise.
        disk_gb: ephemeral storage that pods can request on a node that trains, in GB; 0 if it is not known.
        local_path: the folder of the nodes on their local disks for datasets, which pods mount; empty if
            these disks are the nodes' ephemeral storage, or if there are none.
        limits_cores: whether pods must state a limit of cores: a quota of their namespace counts it.
        node_selector: labels of the GPU nodes.
        is_managed: whether the keeper in the cluster gives a run its nodes. There are none before, and they
            may be in any of several zones, so that a run's pods must keep to one.
        tolerations: tolerations for the GPU nodes' taints.
        capabilities: Linux capabilities that the fabric needs.
        networks: the networks of the nodes' cards besides the first (GKE), in the order of the cards.
        profile: a script of the transport plug-in, sourced before the trainer starts; empty without one.
        service_account_annotations: annotations that give the service account an identity of the cloud.
        pod_labels: labels by which its pods use that identity.
        notice_s: seconds that the node pool gives a pod from the notice of a preemption to its end; 0 if the
            nodes are not preempted.
        unhealthy: conditions by which the cloud's agents report a node that must be repaired, each with the
            status of a problem.
        topology: labels of nodes with the parts of the network that they are in, the widest part first; empty
            if ranks are ordered by the names of their pods.
        notices: the cloud whose notices the trainer reads: aws, azure, gcp; empty for none.
        drains: whether the cloud evicts the pods of a node that it announces to reclaim.
        image_repository: the target of `cloudrec image push`; empty if the user names one.
        built_in: names of the add-ons that the cloud has installed.
        volumes: file systems and buckets that pods can mount: name, driver, handle, capacity, attributes,
            mount_options of each.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    kubeconfig: str
    context: str
    namespace: str
    service_account: str
    identity: str = ""
    fabric: str = "none"
    instance_type: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    claims: Sequence[DeviceClaim] = ()
    cpus: int = 0
    memory_gib: int = 0
    disk_gb: int = 0
    local_path: str = ""
    limits_cores: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    is_managed: bool = False
    tolerations: Sequence[Mapping[str, str]] = ()
    capabilities: Sequence[str] = ()
    networks: Sequence[CardNetwork] = ()
    profile: str = ""
    service_account_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    notice_s: int = 30
    unhealthy: Mapping[str, str] = field(default_factory=dict)
    topology: Sequence[str] = ()
    notices: str = ""
    drains: bool = False
    image_repository: str = ""
    built_in: Sequence[str] = ()
    volumes: Sequence[Mapping[str, Any]] = ()

    @property
    def is_preempted(self) -> bool:
        """Whether the cloud may take a node back, after a notice that ends its pods."""
        return bool(self.notice_s and (self.notices or self.drains))
