"""The values of a run from which its manifests are rendered, the same for each launcher and cloud."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.target import PodSetup


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One launch of one run.

    Attributes:
        run: the run's name, a DNS label of at most 52 characters.
        cluster: the cluster's name.
        owner: the owner for the labels.
        launch: the number of the launch, 1 for the first.
        image: the trainer's image, by digest.
        setup: what pods install in it first; None if the image has the trainer.
        nodes: number of nodes that train.
        min_nodes: number of nodes with which the run may continue.
        processes: trainer processes on each node.
        command: the command of one rank, without its configuration: python -m trainer.
        flags: further flags for it.
        config: the text of trainer.yaml.
        environment: the user's variables, which override the transport's.
        secrets: variables that refer to Secrets: the value of `valueFrom` of each.
        results: URI of the folder of results in the cluster's storage.
        checkpoints: URI of the folder of its checkpoints.
        dataset: path or URI of the data; empty if the run names none.
        max_restarts: number of crashes after which the run still continues.
        grace_s: seconds between SIGTERM and the kill of a pod.
        cpus: cores that a pod requests; 0 for none.
        memory_gib: memory that a pod requests, in GiB; 0 for none.
        disk_gib: ephemeral storage that a pod requests, in GiB; 0 for none.
        allow_tcp: train over TCP if the intended transport is not found.
        priority_class: the pods' priority class; empty for the cluster's default.
        queue: Kueue's local queue; empty without Kueue.
        level: the label of the part of the network in which Kueue places all pods; empty for none.
        level_required: whether the run waits until one such part has room for all pods.
        start_timeout_s: seconds that a pod waits for those of the other nodes before the first step; 0 for no
            limit. Whether the run has started before is known from its results.
        in_place: whether the cluster restarts a container in its pod by the code with which it ended.
        dead_node: `replace` if the guard may end a pod whose node is dead while its Node object stays.
        metrics_port: the port at which its pods serve metrics; 0 for none.
        wishes: labels by which the run asks the keeper of a managed cluster for nodes: see `wishes`.
    """

    run: str
    cluster: str
    owner: str
    launch: int
    image: str
    nodes: int
    min_nodes: int
    processes: int
    command: tuple[str, ...]
    setup: PodSetup | None = None
    flags: tuple[str, ...] = ()
    config: str = "{}\n"
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    results: str = ""
    checkpoints: str = ""
    dataset: str = ""
    max_restarts: int = 3
    grace_s: int = 30
    cpus: int = 0
    memory_gib: int = 0
    disk_gib: int = 0
    allow_tcp: bool = False
    priority_class: str = ""
    queue: str = ""
    level: str = ""
    level_required: bool = False
    start_timeout_s: int = 0
    dead_node: str = ""
    wishes: Mapping[str, str] = field(default_factory=dict)
    in_place: bool = False
    metrics_port: int = 0
