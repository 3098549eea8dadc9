"""The use case `data push`: a prepared dataset goes to where a cluster's runs read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.choosing import choose
from cloudrec.data import places
from cloudrec.data.push import carry_out, survey
from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.data.push import PushPlan

_FOLDER = "data"  # of the cluster's storage


def push_dataset(
    app: AppContext,
    source: Path,
    *,
    uri: str | None,
    cluster_name: str | None,
    name: str | None,
    overwrite: bool,
    decide: Callable[[PushPlan], bool],
    progress: Callable[[], AbstractContextManager[Callable[[int, int | None], None]]],
) -> PushPlan:
    """Push a prepared dataset, and return what was done or, where `decide` said no, would have been.

    Args:
        app: what every use case works with.
        source: the prepared dataset's folder.
        uri: where it goes; a cluster's own storage when None.
        cluster_name: whose storage; the only cluster's when None.
        name: what the dataset is called there; its folder's name when None.
        overwrite: replace another dataset that is there.
        decide: is shown what would be sent.
        progress: begun once there is something to send; is told of bytes sent and of all that are to be.

    Raises:
        DataError: it is no prepared dataset, or damaged.
        UsageError: another dataset is there, or both a URI and a cluster are named.
        PreflightError: no cluster is up, or no credentials.
        StorageError: the place refuses.
    """
    if uri is not None and cluster_name is not None:
        raise UsageError("a URI and --cluster name two places", remedy="give one of them")
    if uri is None:
        uri = f"{_storage(app, cluster_name)}/{_FOLDER}/{name or source.absolute().name}"
    place = places.find(uri)
    plan = survey(source, place)
    if decide(plan):
        with progress() as update:
            carry_out(plan, place, overwrite=overwrite, progress=update)
    return plan


def _storage(app: AppContext, cluster_name: str | None) -> str:
    cluster = choose(app, provider_name=None, cluster_name=cluster_name)
    return app.provider(cluster.provider).access(cluster).storage.rstrip("/")
