"""The packages of Google's SDK, by service: typed clients and messages, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cloudrec.errors import MissingExtraError
from cloudrec.providers.base.lazy import Lazy

if TYPE_CHECKING:
    from types import ModuleType

    from google.cloud import artifactregistry_v1 as artifactregistry
    from google.cloud import billing_v1 as billing
    from google.cloud import cloudquotas_v1 as cloudquotas
    from google.cloud import compute_v1 as compute
    from google.cloud import container_v1 as container
    from google.cloud import lustre_v1 as lustre
    from google.cloud import resourcemanager_v3 as resourcemanager
    from google.cloud import service_usage_v1 as service_usage
    from google.cloud import storage


def _load(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError("gcp", module=str(error.name)) from error


if not TYPE_CHECKING:
    artifactregistry = Lazy("google.cloud.artifactregistry_v1", _load)
    billing = Lazy("google.cloud.billing_v1", _load)
    cloudquotas = Lazy("google.cloud.cloudquotas_v1", _load)
    compute = Lazy("google.cloud.compute_v1", _load)
    container = Lazy("google.cloud.container_v1", _load)
    lustre = Lazy("google.cloud.lustre_v1", _load)
    resourcemanager = Lazy("google.cloud.resourcemanager_v3", _load)
    service_usage = Lazy("google.cloud.service_usage_v1", _load)
    storage = Lazy("google.cloud.storage", _load)

__all__ = [
    "artifactregistry",
    "billing",
    "cloudquotas",
    "compute",
    "container",
    "lustre",
    "resourcemanager",
    "service_usage",
    "storage",
]
