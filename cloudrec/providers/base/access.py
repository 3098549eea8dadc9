"""How a launcher reaches a running cluster: one type for each kind of cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.process.ray_target import RayTarget
from cloudrec.transport import fabrics, profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """The facts about a cluster that every launcher needs.

    Attributes:
        launchers: names of the launchers that work there, the default first.
        nodes: number of nodes that train.
        gpus_per_node: GPUs on each; 0 trains on the CPU.
        cores_per_node: cores on each that the trainer may use.
        storage: URI of the cluster's storage for data and checkpoints.
        environment: transport settings that every process of a run needs there.
        is_adopted: whether the cluster existed before `up`; `down` then keeps it.
        expires: the end that is written in the cluster, ISO 8601; empty if only the journal has it.
    """

    launchers: tuple[str, ...]
    nodes: int
    gpus_per_node: int
    cores_per_node: int
    storage: str
    environment: Mapping[str, str] = field(default_factory=dict)
    is_adopted: bool = False
    expires: str = ""


@dataclass(frozen=True, kw_only=True)
class KubernetesAccess(ClusterAccess):
    """A Kubernetes cluster.

    Attributes:
        target: how to reach its API, and what its GPU nodes require of a pod.
    """

    target: ClusterTarget

    def run_target(self) -> ClusterTarget:
        """Return the part that a run's spec.json stores."""
        return self.target


@dataclass(frozen=True, kw_only=True)
class HostAccess(ClusterAccess):
    """A machine on which the launcher itself starts processes."""

    def run_target(self) -> None:
        """Return None: a run's spec.json stores nothing about this machine."""


@dataclass(frozen=True, kw_only=True)
class RayAccess(ClusterAccess):
    """A machine with a Ray head.

    Attributes:
        address: URL of the head's dashboard.
        token_file: path of the file that holds its token.
    """

    address: str
    token_file: str

    def run_target(self) -> RayTarget:
        """Return the part that a run's spec.json stores."""
        return RayTarget(ray_address=self.address, ray_token_file=self.token_file)


Access: TypeAlias = KubernetesAccess | HostAccess | RayAccess

# The launchers for Kubernetes; the first, which is the default, needs no operator.
LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "jobset", "rayjob")


def cluster_target(
    *,
    kubeconfig: Path,
    context: str,
    account: str,
    fabric: str,
    instance_type: str,
    gpus: int,
    cards: int | None = None,
    huge_pages_mib: int | None = None,
    **more: Any,  # noqa: ANN401 - the other fields of ClusterTarget
) -> ClusterTarget:
    """Return the target that launchers and manifests use for a cluster.

    Args:
        kubeconfig: path of the private kubeconfig.
        context: the context in it.
        account: the pods' service account, as NAMESPACE/NAME.
        fabric: the interconnect between GPUs of different nodes; one without a profile is taken for tcp.
        instance_type: the GPU nodes' instance type.
        gpus: GPUs of a node.
        cards: the fabric's cards of a node as the cloud reports them; None for the profile's number.
        huge_pages_mib: huge pages of 2 MiB that a node has for a pod; None for the profile's number.
        more: other fields of `ClusterTarget`.
    """
    if fabric not in fabrics():  # `up` was allowed to create these nodes without their fabric
        fabric = "tcp"
    profile = profile_of(fabric, instance_type)
    namespace, _, name = account.partition("/")
    given: Mapping[str, Any] = {
        "resources": profile.pod_resources(gpus, cards, huge_pages_mib),
        "capabilities": list(profile.capabilities),
        "profile": profile.script,
        **more,
    }
    return ClusterTarget(
        kubeconfig=str(kubeconfig),
        context=context,
        namespace=namespace,
        service_account=name,
        fabric=fabric,
        instance_type=instance_type,
        **given,
    )
