"""A layout without any cloud call."""

from __future__ import annotations

from typing import Any, Literal

from cloudrec.providers.azure.account import Caller
from cloudrec.providers.azure.layout import AzureLayout
from cloudrec.providers.azure.offers import KNOWN
from cloudrec.providers.azure.settings import settings_of
from cloudrec.spec.models import ClusterSpec

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
CALLER = Caller(
    object_id="00000000-0000-0000-0000-00000000000a",
    kind="ServicePrincipal",
    name="tester",
    tenant="00000000-0000-0000-0000-00000000000b",
    expires=0.0,
)


def layout(
    name: str = "t",
    *,
    zones: tuple[str, ...] = ("1", "2"),
    types: tuple[str, ...] = ("Standard_ND96asr_v4",),
    offered: dict[str, tuple[str, ...]] | None = None,
    nodes: int = 1,
    capacity: Literal["on-demand", "spot", "spot-first"] = "on-demand",
    version: str | None = None,
    access: str = "auto",
    **settings: Any,
) -> AzureLayout:
    cluster = ClusterSpec(
        name=name,
        provider="azure",
        owner="tester",
        nodes=nodes,
        capacity=capacity,
        kubernetes_version=version,
        access=access,
        settings=settings,
    )
    return AzureLayout(
        cluster=cluster,
        settings=settings_of(cluster),
        region="eastus",
        subscription=SUBSCRIPTION,
        caller=CALLER,
        gpu_zones=zones,
        system_zones=tuple(zone for zone in zones if zone),
        instance_types=types,
        hardware={each: KNOWN[each] for each in types},
        offered=offered or {},
    )
