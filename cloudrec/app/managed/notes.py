"""What the keeper of a cluster wrote down, read from the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.app.readiness import BRIEFLY_S
from cloudrec.keeper.note import NAME
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.wire import brief
from cloudrec.providers.base.access import KubernetesAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.app.context import AppContext
    from cloudrec.app.records import KnownCluster


def keeper_notes(app: AppContext, known: KnownCluster) -> Mapping[str, str]:
    """Return the entries of the keeper's ConfigMap; none if there is no keeper.

    The API server gets a few seconds, since `status` waits for it.

    Raises:
        CloudrecError: the cluster cannot be asked.
    """
    access = app.provider(known.record.provider).access(known.cluster)
    if not isinstance(access, KubernetesAccess):
        return {}
    with brief(BRIEFLY_S), Kube.connect(access.target) as kube:
        found = kube.get("ConfigMap", NAME, namespace=access.target.namespace) or {}
    return dict(found.get("data") or {})
