"""The provider of existing Kubernetes clusters, adopted through a context of the user's kubeconfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.protocol import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.providers.base.protocol import Provider

__all__ = ["NEEDS", "create"]

NEEDS = Needs(
    extra="kubernetes",
    modules=(
        "fsspec",
        "kubernetes.client",
        "kubernetes.config",
    ),
)


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider, which reads KUBECONFIG and HOME."""
    from cloudrec.providers.kubernetes.provider import KubernetesProvider  # noqa: PLC0415 - NEEDS must be known without the SDK

    return KubernetesProvider(home, environment)
