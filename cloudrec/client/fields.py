"""Keyword arguments of `Client.up` and `Client.train`: the keys of the spec's sections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ClusterFields(TypedDict, total=False):
    """Keys of the section `cluster:`; docs/settings.md describes them."""

    owner: str
    region: str
    zones: Sequence[str]
    instance_types: Sequence[str]
    nodes: int
    capacity: Literal["on-demand", "spot", "spot-first", "block", "flex-start"]
    block_hours: int
    block_start: str
    storage_of: str
    kubernetes_version: str
    ttl: str
    budget_usd: float
    max_hourly_usd: float
    allow_tcp: bool
    managed: bool
    autostop: str
    metrics: Literal["off", "prometheus", "managed"]
    metrics_port: int
    notify: Mapping[str, Any]
    addons: Literal["install", "none"]
    access: str
    base_image: str
    package_index: str
    settings: Mapping[str, Any]


class TrainFields(TypedDict, total=False):
    """Keys of the section `train:`; docs/settings.md describes them."""

    launcher: str
    workdir: str
    requirements: str
    nodes: int
    nproc_per_node: int
    max_restarts: int
    image: str
    regions: Sequence[str]
    min_nodes: int
    allow_tcp: bool
    data_tier: Literal["auto", "local", "lustre", "bucket"]
    settings: Mapping[str, Any]
    metrics_port: int
    stop_grace_s: float
    env: Mapping[str, str]
    env_file: Sequence[str]
    secrets: Mapping[str, str]
