"""A layout without any cloud call."""

from __future__ import annotations

from typing import Any, Literal

from cloudrec.providers.aws.layout import AwsLayout
from cloudrec.providers.aws.settings import settings_of
from cloudrec.spec.models import ClusterSpec


def layout(
    name: str = "t",
    zones: tuple[str, ...] = ("us-east-1a", "us-east-1b"),
    *,
    capacity: Literal["on-demand", "spot", "spot-first"] = "on-demand",
    **settings: Any,
) -> AwsLayout:
    cluster = ClusterSpec(
        name=name, provider="aws", owner="tester", nodes=1, capacity=capacity, settings=settings
    )
    return AwsLayout(
        cluster=cluster,
        settings=settings_of(cluster),
        region="us-east-1",
        account="123456789012",
        gpu_zones=zones,
        zones=tuple(sorted(zones)),
        instance_types=("p4d.24xlarge",),
    )
