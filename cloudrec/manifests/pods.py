"""What each template of a pod and its containers may place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.manifests.rendering import Context

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Container(Context):
    """A container of ours: it writes to its volumes alone, and has no right that the fabric does not need.

    Args:
        name: its name.
        image: its image.
        command: what it runs; None where an operator says so.
        args: the rest of it.
        environment: its variables.
        ports: those that an operator looks for by name.
        requests: what the node must have for it.
        limits: what it may use.
        lifecycle: what is done before it is stopped.
        capabilities: what it needs beyond an unprivileged container.
        mounts: the volumes that it sees.
    """

    name: str
    image: str
    command: Sequence[str] | None
    args: Sequence[str] | None
    environment: Entries
    ports: Entries | None
    requests: Mapping[str, str] | None
    limits: Mapping[str, str] | None
    lifecycle: Mapping[str, Any] | None
    capabilities: Sequence[str] | None
    mounts: Entries


@dataclass(frozen=True, kw_only=True)
class Daemon(Context):
    """A transport plug-in's daemon beside the trainer. It is its maker's image, and runs as root.

    Args:
        name: its name.
        image: its image.
        command: what it runs.
        environment: its variables.
        requests: what the node must have for it.
        startup_probe: how to tell that the trainer may begin.
        capabilities: what it needs beyond an unprivileged container.
        mounts: the volumes that it sees.
    """

    name: str
    image: str
    command: Sequence[str]
    environment: Entries
    requests: Mapping[str, str]
    startup_probe: Mapping[str, Any] | None
    capabilities: Sequence[str] | None
    mounts: Entries


@dataclass(frozen=True, kw_only=True)
class Pod(Context):
    """A pod's template.

    Args:
        labels: whose it is.
        annotations: what the cluster's own parts read.
        service_account: what it runs as.
        token: whether it sees that account's token.
        restart_policy: what becomes of a container that has ended; None where an operator says so.
        grace_s: seconds between SIGTERM and the kill.
        priority_class: None for the cluster's default.
        subdomain: the headless Service that gives it a name; None without one.
        node_selector: labels of the nodes.
        tolerations: what it puts up with.
        affinity: with whom it shares no node.
        non_root: whether root is refused.
        user: user and group.
        sidecars: daemons that start first and end last.
        containers: the others.
        volumes: what they mount.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str] | None
    service_account: str
    token: bool
    restart_policy: str | None
    grace_s: int
    priority_class: str | None
    subdomain: str | None
    node_selector: Mapping[str, str] | None
    tolerations: Entries | None
    affinity: Mapping[str, Any] | None
    non_root: bool
    user: int
    sidecars: Sequence[Daemon] | None
    containers: Sequence[Container]
    volumes: Entries
