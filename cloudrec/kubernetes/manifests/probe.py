"""The manifests of a probe: before a launch, a pod pulls the image, reads the dataset and writes results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests import network, placement, shared
from cloudrec.kubernetes.manifests.commands import POD, probe_arguments
from cloudrec.kubernetes.manifests.environment import endpoint_ports
from cloudrec.kubernetes.manifests.names import ENGINES, ROLE, RUN, check, run_labels
from cloudrec.kubernetes.manifests.pods import Shape, training_pod, without_fabric
from cloudrec.kubernetes.manifests.setup import light as lightly
from cloudrec.kubernetes.manifests.setup import urls
from cloudrec.kubernetes.manifests.templates import contexts
from cloudrec.kubernetes.manifests.templates.rendering import render

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.templates.pods import Pod
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

PROBE = "probe"
_DEADLINE_S = 900  # most of it for the download of the image
_KEEP_S = 600  # after its end, for the launcher to read the result
_GRACE_S = 5
_RESOURCES = {"cpu": "500m", "memory": "1Gi"}


def probe_name(run: str) -> str:
    """Return the name of all objects of a run's probe."""
    return f"{run}-{PROBE}"


def probe_objects(workload: Workload, target: ClusterTarget, profile: Profile) -> tuple[dict[str, Any], ...]:
    """Return the objects of a probe: one pod, on a node that will train, without its GPUs.

    All have the name `probe_name`, and can be deleted once the Job has ended.

    Raises:
        SpecError: a name, the image or a variable is not valid.
    """
    check(ENGINES["torchrun"], workload, target)
    own = {RUN: workload.run, ROLE: PROBE}
    named: dict[str, Any] = {
        "name": probe_name(workload.run),
        "namespace": target.namespace,
        "labels": {**run_labels(workload), ROLE: PROBE},
    }
    parts = (
        contexts.ConfigMap(**named, data={"trainer.yaml": workload.config}),
        contexts.NetworkPolicy(
            **named,
            selector=own,
            ingress=None,
            egress=network.outwards(to=None, ports=endpoint_ports(urls(workload))),
        ),
        contexts.ProbeJob(
            **named, deadline_s=_DEADLINE_S, keep_s=_KEEP_S, pod=_pod(workload, target, profile)
        ),
    )
    return tuple(render(each) for each in parts)


def _pod(workload: Workload, target: ClusterTarget, profile: Profile) -> Pod:
    # Without GPUs: the probe must also run while other runs use them.
    light, bare = without_fabric(target, profile)
    shape = Shape(
        container=PROBE,
        role=PROBE,
        config=probe_name(workload.run),
        command=(*POD, PROBE),
        args=probe_arguments(workload),
    )
    short = replace(workload, grace_s=_GRACE_S, setup=lightly(workload.setup))
    pod = training_pod(short, light, bare, shape)
    container = replace(pod.containers[0], requests=_RESOURCES, limits=_RESOURCES)
    return replace(
        pod,
        annotations=shared.pod_annotations(workload, target) or None,
        tolerations=placement.tolerations(target),
        # Before the keeper of a managed cluster gives the run its nodes, the others are all that there is.
        node_selector=None if target.is_managed else pod.node_selector,
        affinity=None,
        containers=[container],
    )
