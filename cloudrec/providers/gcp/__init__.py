"""Google Cloud: GKE, its network and its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.providers.base.protocol import Provider

__all__ = ["NEEDS", "create"]

NEEDS = Needs(
    extra="gcp",
    modules=(
        "aiohttp",
        "fsspec",
        "gcsfs",
        "google.api_core",
        "google.auth.transport.requests",
        "google.cloud.artifactregistry_v1",
        "google.cloud.billing_v1",
        "google.cloud.cloudquotas_v1",
        "google.cloud.compute_v1",
        "google.cloud.container_v1",
        "google.cloud.lustre_v1",
        "google.cloud.resourcemanager_v3",
        "google.cloud.service_usage_v1",
        "google.cloud.storage",
        "google.protobuf",
        "google_crc32c",
        "grpc",
        "kubernetes.client",
        "kubernetes.config",
        "requests",
    ),
)


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider; `environment` has the variables of Google's tools."""
    from cloudrec.providers.gcp.provider import GcpProvider  # noqa: PLC0415 - NEEDS must be known without the SDK

    return GcpProvider(home, environment)
