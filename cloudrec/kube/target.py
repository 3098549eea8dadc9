"""What a run must know of a Kubernetes cluster: where it is reached, and what its GPU nodes ask of a pod.

A provider's `Access.details` is one as a mapping; a run's spec.json keeps it, so that any process
can find, at any time, the cluster on which the run was launched, and tell whether it still is that cluster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Target:
    """A cluster as launchers and manifests see it; every value is plain JSON.

    Attributes:
        kubeconfig: path of the private kubeconfig.
        context: the context in it.
        namespace: where runs live.
        service_account: what pods run as.
        identity: uid of the namespace kube-system, which no two clusters share; empty before it was asked.
        fabric: how GPUs of different nodes talk: efa, infiniband, tcpx, tcpxo, tcp; none without GPUs.
        instance_type: the cloud's name of the GPU nodes' machine; empty on clusters that others made.
        resources: what a pod that has a whole GPU node asks for, GPUs and fabric cards, by resource name.
        cpus: virtual cores of one of them; 0 where a pod is not to ask for any.
        memory_gib: its memory; 0 likewise.
        node_selector: labels of the GPU nodes.
        tolerations: what a pod must put up with on them.
        capabilities: what the fabric needs beyond an unprivileged pod.
        networks: interface, network and subnetwork of each card that is the GPUs' alone (GKE A3), by
            their short names; the network's is that of the cluster's own Network object too.
        profile: a script of the transport plug-in, sourced before the trainer starts; empty without one.
        service_account_annotations: what makes the service account an identity of the cloud.
        pod_labels: what makes its pods use it.
        notice_s: seconds between the notice of a preemption and the end of a node.
        notices: whose notices the trainer listens to: aws, azure, gcp; empty for none.
        image_repository: where `cloudrec image push` puts the trainer's image; empty where the user says.
        built_in: add-ons that the cloud itself has put into the cluster, by their names here.
        volumes: file systems and buckets that pods can mount: name, driver, handle, capacity, attributes,
            mount_options of each.
    """

    kubeconfig: str
    context: str
    namespace: str
    service_account: str
    identity: str = ""
    fabric: str = "none"
    instance_type: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 0
    memory_gib: int = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, str]] = ()
    capabilities: Sequence[str] = ()
    networks: Sequence[Mapping[str, str]] = ()
    profile: str = ""
    service_account_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    notice_s: int = 30
    notices: str = ""
    image_repository: str = ""
    built_in: Sequence[str] = ()
    volumes: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Target:
        """Read one from a mapping; SpecError for what it does not know or lacks."""
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(details) - known):
            raise SpecError(f"the cluster's access tells of {', '.join(unknown)}, which no launcher knows")
        try:
            return cls(**details)
        except TypeError as error:
            raise SpecError(f"the cluster's access is not whole: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return it as a mapping that `of` reads."""
        return asdict(self)
