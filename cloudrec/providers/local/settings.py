"""The settings of the local provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from cloudrec.spec.load import validated
from cloudrec.spec.models import Model

if TYPE_CHECKING:
    from cloudrec.spec.models import ClusterSpec


class LocalSettings(Model):
    """`cluster.settings` for this machine."""

    storage: str | None = Field(None, description="folder for data; one under CLOUDREC_HOME when absent")
    min_free_gib: float = Field(1.0, ge=0, description="free disk space without which `up` refuses")

    ray: bool = Field(
        default=False, description="run a Ray head with a dashboard, for jobs of --launcher ray"
    )

    def storage_folder(self, default: Path) -> Path:
        """Return the storage folder as an absolute path."""
        return Path(self.storage).expanduser().absolute() if self.storage is not None else default


def settings_of(cluster: ClusterSpec) -> LocalSettings:
    """Return the cluster's validated settings; SpecError if they are invalid."""
    return validated(LocalSettings, cluster.settings, {})
