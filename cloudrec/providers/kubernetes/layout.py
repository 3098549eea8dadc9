"""What an adopted cluster's resources are called, and which of them others have made already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.layout import CloudLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.kubernetes.settings import KubernetesSettings


@dataclass(frozen=True, kw_only=True)
class Layout(CloudLayout):
    """Everything that is decided before a resource is described; the same spec gives the same layout.

    Attributes:
        settings: the provider's own.
        config: a kubeconfig of the cluster's context alone.
        foreign: kinds of what others have made, and what we therefore only use.
    """

    settings: KubernetesSettings
    config: Mapping[str, Any] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()

    @property
    def namespace(self) -> str:
        """Where runs live."""
        return self.settings.namespace_of(self.title)
