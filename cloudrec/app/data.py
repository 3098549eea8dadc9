"""The use case `data push`: upload a prepared dataset to a cluster's storage or to a URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.choosing import choose
from cloudrec.app.run.pushed_data import FOLDER, content_of, note
from cloudrec.data.push import carry_out, survey
from cloudrec.data.stores import open_store
from cloudrec.errors import UsageError
from cloudrec.safe_path import check_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.data.push import PushPlan


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
    """Push a prepared dataset, unless `decide` returns False; return the plan.

    Args:
        app: the context of the use case.
        source: the prepared dataset's folder.
        uri: the target; None for a cluster's storage.
        cluster_name: the cluster; None for the only one.
        name: the dataset's name in the storage; None for its folder's name.
        overwrite: replace another dataset in the target.
        decide: called with the plan; False ends the use case without a change.
        progress: a context that is opened before the first upload; yields a function of the bytes sent so far
            and the total.

    Raises:
        DataError: `source` is not a prepared dataset, or it is damaged.
        UsageError: the target has another dataset, or both a URI and a cluster are named.
        PreflightError: no cluster is up, or there are no credentials.
        StorageError: the store refuses.
    """
    if uri is not None and cluster_name is not None:
        raise UsageError("a URI and --cluster name two destinations", remedy="give one of them")
    storage = ""
    if uri is None:
        called = check_name(name or source.resolve().name)
        storage = _storage(app, cluster_name)
        uri = f"{storage}/{FOLDER}/{called}"
    store = open_store(uri)
    plan = survey(source, store)
    if decide(plan):
        with progress() as update:
            carry_out(plan, store, overwrite=overwrite, progress=update)
        if storage:
            note(storage, plan.dataset, content_of(plan.digest, plan.encoding))
    return plan


def _storage(app: AppContext, cluster_name: str | None) -> str:
    cluster = choose(app, provider_name=None, cluster_name=cluster_name)
    return app.provider(cluster.provider, complete=True).access(cluster).storage.rstrip("/")
