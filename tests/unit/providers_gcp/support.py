"""What the unit tests of the GCP provider share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudrec.engine.graph import Resource
from cloudrec.providers.gcp import apis, firewall, identity, lustre, nat, network, registry, storage
from cloudrec.providers.gcp.layout import Layout
from cloudrec.providers.gcp.offers import KNOWN
from cloudrec.providers.gcp.settings import settings_of
from cloudrec.spec.models import ClusterSpec

PARTS = (apis, network, nat, firewall, identity, storage, registry, lustre)


def layout(
    *, zones: Sequence[str] = ("us-central1-a",), types: Sequence[str] = ("a2-highgpu-8g",), **given: Any
) -> Layout:
    """A layout that no cloud was asked for; what is no field of the spec is a setting."""
    fields = {name: given.pop(name) for name in list(given) if name in ClusterSpec.model_fields}
    spec: dict[str, Any] = {"name": "t", "provider": "gcp", "owner": "tester", **fields, "settings": given}
    cluster = ClusterSpec.model_validate(spec)
    return Layout(
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


def described(of: Layout) -> dict[str, Resource]:
    """The network side's resources by key."""
    return {resource.key: resource for part in PARTS for resource in part.resources(of)}
