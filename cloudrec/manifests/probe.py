"""A look from inside before a launch: can pods pull the image, read the dataset and write results?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec.manifests import contexts, network, placement, shared
from cloudrec.manifests.build import Shape, training_pod, without_fabric
from cloudrec.manifests.commands import POD, probe_arguments
from cloudrec.manifests.environment import endpoint_ports
from cloudrec.manifests.names import ENGINES, ROLE, RUN, check, run_labels
from cloudrec.manifests.objects import namespace_objects
from cloudrec.manifests.rendering import render

if TYPE_CHECKING:
    from cloudrec.kube.target import Target
    from cloudrec.manifests.pods import Pod
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

PROBE = "probe"
_DEADLINE_S = 900  # most of it for the image
_KEEP_S = 600
_GRACE_S = 5
_RESOURCES = {"cpu": "500m", "memory": "1Gi"}


def probe_name(run: str) -> str:
    """Return the name of all objects of a run's probe."""
    return f"{run}-{PROBE}"


def probe_objects(workload: Workload, target: Target, profile: Profile) -> tuple[dict[str, Any], ...]:
    """Return the objects of a probe: one pod on a node that is to train, which asks for none of its GPUs.

    All but the namespace's own have the name `probe_name`, and may go once the Job has ended.

    Raises:
        SpecError: a name, the image or a variable is nothing that Kubernetes takes.
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
            ingress=[],
            egress=network.outwards(to=None, ports=endpoint_ports(workload.environment)),
        ),
        contexts.ProbeJob(
            **named, deadline_s=_DEADLINE_S, keep_s=_KEEP_S, pod=_pod(workload, target, profile)
        ),
    )
    namespace = namespace_objects(target, workload.cluster, workload.owner)
    return (*namespace, *(render(each) for each in parts))


def _pod(workload: Workload, target: Target, profile: Profile) -> Pod:
    light, bare = without_fabric(target, profile)
    shape = Shape(
        container=PROBE,
        role=PROBE,
        config=probe_name(workload.run),
        command=(*POD, PROBE),
        args=probe_arguments(workload),
    )
    pod = training_pod(replace(workload, grace_s=_GRACE_S), light, bare, shape)
    container = replace(pod.containers[0], requests=_RESOURCES, limits=_RESOURCES)
    return replace(
        pod,
        annotations=shared.pod_annotations(workload, target) or None,
        tolerations=placement.tolerations(target),
        affinity=None,
        containers=[container],
    )
