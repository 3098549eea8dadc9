"""A layout that no cloud was asked for."""

from __future__ import annotations

from typing import Any

from cloudrec.providers.aws.layout import Layout
from cloudrec.providers.aws.settings import settings_of
from cloudrec.spec.models import ClusterSpec


def layout(name: str = "t", zones: tuple[str, ...] = ("us-east-1a", "us-east-1b"), **settings: Any) -> Layout:
    cluster = ClusterSpec(name=name, provider="aws", owner="tester", settings=settings)
    return Layout(
        cluster=cluster,
        settings=settings_of(cluster),
        region="us-east-1",
        account="123456789012",
        gpu_zones=zones,
        zones=tuple(sorted(zones)),
        instance_types=("p4d.24xlarge",),
    )
