"""The metadata services that can be watched, and where each is reached."""

from __future__ import annotations

import os
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainer.preempt import aws, azure, gcp
from trainer.preempt.metadata import MetadataService
from trainer.preempt.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainer.preempt.watch import Service

SERVICES: Mapping[str, Service] = MappingProxyType(
    {"aws": aws.SERVICE, "azure": azure.SERVICE, "gcp": gcp.SERVICE}
)


@contextmanager
def open_watches(names: Sequence[str], urls: Mapping[str, str | None]) -> Iterator[tuple[Watch, ...]]:
    """Watch the services named in `names`; their threads end with the context.

    `urls` are the settings; where there is none, the SDKs' own variables count, then the cloud's address.
    """
    watches = tuple(_watch(name, urls.get(name) or default_url(name, os.environ)) for name in names)
    try:
        for watch in watches:
            watch.start()
        yield watches
    finally:
        for watch in watches:
            watch.close()


def default_url(name: str, environment: Mapping[str, str]) -> str:
    """Where a service is reached unless a setting says otherwise."""
    if name == "aws" and (endpoint := environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")):
        return endpoint
    if name == "gcp" and (host := environment.get("GCE_METADATA_HOST")):
        return f"http://{host}"
    return SERVICES[name].url


def _watch(name: str, url: str) -> Watch:
    return Watch(name, SERVICES[name], MetadataService(url))
