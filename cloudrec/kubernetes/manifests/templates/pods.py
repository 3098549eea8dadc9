"""The values of the templates of pods and containers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Entries = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Container(TemplateContext):
    """A container of cloudrec's. It writes only to its volumes, and has only the privileges of its fabric.

    Args:
        name: its name.
        image: its image.
        command: its command; None if the operator sets it.
        args: the command's arguments.
        environment: its variables.
        ports: ports with the names that the operator requires; None for none.
        requests: its resource requests.
        limits: its resource limits.
        lifecycle: its lifecycle hooks.
        readiness: the probe that shows whether it works; None for none.
        restart_policy: its own restart policy; None for the pod's.
        restart_rules: the rules that come before that policy; None for none.
        capabilities: Linux capabilities that the fabric needs; None for none.
        mounts: its volume mounts.
        claims: the claims of the pod whose devices it gets; None for none.
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
    readiness: Mapping[str, Any] | None = None
    claims: Entries | None = None
    restart_policy: str | None = None
    restart_rules: Entries | None = None


@dataclass(frozen=True, kw_only=True)
class Daemon(TemplateContext):
    """The daemon of a transport plug-in, beside the trainer. It runs the vendor's image, as root.

    Args:
        name: its name.
        image: its image.
        command: its command.
        environment: its variables.
        requests: its resource requests.
        startup_probe: the probe after which the trainer starts; None for none.
        capabilities: Linux capabilities that it needs; None for none.
        mounts: its volume mounts.
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
class Pod(TemplateContext):
    """A pod template.

    Args:
        labels: its labels.
        annotations: its annotations, for autoscalers and the cloud's network.
        service_account: its service account.
        token: whether the account's token is mounted.
        restart_policy: its restart policy; None if the operator sets it.
        grace_s: seconds between SIGTERM and the kill.
        priority_class: its priority class; None for the cluster's default.
        subdomain: the headless Service of its DNS name; None without one.
        node_selector: labels of the nodes.
        tolerations: its tolerations.
        affinity: its affinity.
        non_root: whether the kubelet refuses to run it as root.
        user: the user id and group id.
        sidecars: what starts before the containers: a program that ends, and daemons that end after them.
        containers: its containers.
        volumes: the volumes that the containers mount.
        claims: the templates of its claims for devices; None for none.
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
    sidecars: Sequence[Container | Daemon] | None
    containers: Sequence[Container]
    volumes: Entries
    claims: Entries | None = None
