"""A run as manifests see it, whatever launcher and cloud: what is to run, where, from which image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One launch of one run.

    Attributes:
        run: the run's name, a DNS label of at most 52 characters.
        cluster: the cluster's name.
        owner: who answers for it.
        launch: which launch of the run, 1 for the first.
        image: the trainer's image, by digest.
        nodes: nodes that train.
        min_nodes: with how many it may go on when some are lost.
        processes: trainer processes on each node.
        command: the program of one rank, without its configuration: python -m trainer.
        flags: more flags for it.
        config: the text of trainer.yaml.
        environment: variables beyond the transport's own; they win.
        results: URI of the folder in the cluster's storage that holds the run's files.
        max_restarts: how often a crash is forgiven.
        grace_s: seconds that a pod has between SIGTERM and its end.
        cpus: cores that a pod asks for, 0 to ask for none.
        memory_gib: memory that a pod asks for, 0 to ask for none.
        allow_tcp: train even where the intended transport is not found.
        priority_class: the pods' priority class; empty for the cluster's default.
        queue: Kueue's local queue; empty without Kueue.
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
    flags: tuple[str, ...] = ()
    config: str = "{}\n"
    environment: Mapping[str, str] = field(default_factory=dict)
    results: str = ""
    max_restarts: int = 3
    grace_s: int = 30
    cpus: int = 0
    memory_gib: int = 0
    allow_tcp: bool = False
    priority_class: str = ""
    queue: str = ""
