"""What a provider tells launchers of its GPU nodes: what it alone knows; profiles tell the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kube.target import Target
from cloudrec.plan.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The ways of starting a run on Kubernetes, the one that needs no operator first.
LAUNCHERS = ("torchrun", "pytorchjob", "trainjob", "rayjob")


def target_details(
    *,
    kubeconfig: Path,
    context: str,
    account: str,
    fabric: str,
    instance_type: str,
    gpus: int,
    cards: int | None = None,
    **more: Any,  # noqa: ANN401 - the other fields of Target
) -> dict[str, Any]:
    """Return what `Target.of` reads of a cluster.

    Args:
        kubeconfig: the private kubeconfig.
        context: the context in it.
        account: namespace and name of what pods run as, with a slash between.
        fabric: how GPUs of different nodes talk.
        instance_type: the GPU nodes' machine.
        gpus: GPUs of a node.
        cards: cards of the fabric that a node has, where the cloud was asked; else the profile's.
        more: other fields of `Target`.
    """
    profile = profile_of(fabric, instance_type)
    namespace, _, name = account.partition("/")
    given: Mapping[str, Any] = {
        "resources": profile.pod_resources(gpus, cards),
        "capabilities": list(profile.capabilities),
        "profile": profile.script,
        **more,
    }
    return Target(
        kubeconfig=str(kubeconfig),
        context=context,
        namespace=namespace,
        service_account=name,
        fabric=fabric,
        instance_type=instance_type,
        **given,
    ).to_json()
