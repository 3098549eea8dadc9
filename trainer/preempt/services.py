"""The metadata services that can be watched, and their URLs."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainer.base.notice_services import notice_services
from trainer.preempt.metadata import MetadataService
from trainer.preempt.watch import NoticeWatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trainer.preempt.watch import Service

SERVICES: Mapping[str, Service] = MappingProxyType(
    {name: import_module(f"trainer.preempt.clouds.{name}").SERVICE for name in notice_services()}
)


@contextmanager
def open_watches(
    names: Sequence[str], urls: Mapping[str, str | None], *, lead_s: float | None = None
) -> Iterator[tuple[NoticeWatch, ...]]:
    """Watch the services named in `names`; their threads end with the context.

    A service's URL is the one in `urls`, otherwise that of the SDK's variable, otherwise the cloud's address.
    A notice leaves this process `lead_s` seconds; the service's lead time if it is None.
    """
    watches = tuple(_watch(name, urls.get(name) or default_url(name, os.environ), lead_s) for name in names)
    try:
        for watch in watches:
            watch.start()
        yield watches
    finally:
        for watch in watches:
            watch.close()


def default_url(name: str, environment: Mapping[str, str]) -> str:
    """Return a service's URL without a setting: from the SDK's variable, or the cloud's address."""
    service = SERVICES[name]
    named = environment.get(service.variable, "") if service.variable else ""
    if not named:
        return service.url
    return named if "://" in named else f"http://{named}"


def _watch(name: str, url: str, lead_s: float | None) -> NoticeWatch:
    return NoticeWatch(name, SERVICES[name], MetadataService(url), lead_s=lead_s)
