"""The check of a cluster's fabric before `up`: no GPU waits for a network that is slower than it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.findings import Finding
from cloudrec.transport import is_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.base.offers import InstanceType
    from cloudrec.spec.models import ClusterSpec


def findings(
    cluster: ClusterSpec, instance_types: Sequence[str], hardware: Mapping[str, InstanceType]
) -> list[Finding]:
    """Refuse several nodes of a machine for which no transport profile has the settings and the checks.

    NCCL takes plain TCP without an error where it does not find the fabric: an H200 then trains at a fraction
    of its speed, for the same price.

    Args:
        cluster: the spec.
        instance_types: the machines to try.
        hardware: instance type -> its hardware.
    """
    if cluster.nodes == 1:
        return []
    return [
        Finding(
            check=f"fabric of {name}",
            ok=False,
            found=f"no transport profile names {name} ({hardware[name].fabric}): its {cluster.nodes} nodes "
            "may train over plain TCP",
            needed="a machine with a profile, or --allow-tcp",
            remedy="choose an instance type that cloudrec/transport/profiles.yaml names, or --nodes 1; with "
            "--allow-tcp the nodes are created anyway",
            blocks=not cluster.allow_tcp,
        )
        for name in instance_types
        if not is_named(hardware[name].fabric, name)
    ]
