"""Shared helpers of the Google Cloud provider's unit tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudrec.engine.graph import Resource
from cloudrec.providers.gcp.api import apis
from cloudrec.providers.gcp.identity import identity
from cloudrec.providers.gcp.layout import GcpLayout
from cloudrec.providers.gcp.network import firewall, nat, network
from cloudrec.providers.gcp.offers import KNOWN
from cloudrec.providers.gcp.registry import registry
from cloudrec.providers.gcp.settings import settings_of
from cloudrec.providers.gcp.storage import lustre, storage
from cloudrec.spec.models import ClusterSpec

PARTS = (apis, network, nat, firewall, identity, storage, registry, lustre)


def layout(
    *, zones: Sequence[str] = ("us-central1-a",), types: Sequence[str] = ("a2-highgpu-8g",), **given: Any
) -> GcpLayout:
    """A layout without any cloud call; arguments that are not fields of the spec are settings."""
    fields = {name: given.pop(name) for name in list(given) if name in ClusterSpec.model_fields}
    base: dict[str, Any] = {"name": "t", "provider": "gcp", "owner": "tester", "nodes": 1}
    spec = {**base, **fields, "settings": given}
    cluster = ClusterSpec.model_validate(spec)
    return GcpLayout(
        cluster=cluster,
        settings=settings_of(cluster),
        region="us-central1",
        project="a-project",
        number="123456789012",
        home_zone=zones[0],
        gpu_zones=tuple(zones),
        instance_types=tuple(types),
        hardware={name: KNOWN[name] for name in types},
        offered={name: tuple(zones) for name in types},
    )


def described(of: GcpLayout) -> dict[str, Resource[Any]]:
    """The network side's resources by key."""
    return {resource.key: resource for part in PARTS for resource in part.resources(of)}
