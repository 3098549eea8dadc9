"""Any cluster of Kubernetes that is there already, adopted by a context of the user's kubeconfig."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.kubernetes.provider import KubernetesProvider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.home import Home
    from cloudrec.provider import Provider


def create(home: Home, environment: Mapping[str, str]) -> Provider:
    """Return the provider, which reads KUBECONFIG and HOME."""
    return KubernetesProvider(home, environment)
