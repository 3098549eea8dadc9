"""Names of an adopted cluster's objects, and which of them existed before `up`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.target import LEVELS
from cloudrec.providers.base.layout import CloudLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.kubernetes.settings import KubernetesSettings


@dataclass(frozen=True, kw_only=True)
class KubeLayout(CloudLayout):
    """The names and settings of an adopted cluster's objects.

    Attributes:
        settings: the provider's settings.
        config: a kubeconfig with the cluster's context only.
        foreign: kinds whose object existed before `up`; cloudrec uses it, and does not change or delete it.
        level: the Pod Security level of the namespace, if `up` creates it.
    """

    settings: KubernetesSettings
    config: Mapping[str, Any] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    level: str = LEVELS[0]

    @property
    def namespace(self) -> str:
        """The namespace of the runs."""
        return self.settings.namespace_of(self.title)
