"""The lease by which only one keeper of a cluster acts at a time (coordination.k8s.io/v1)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.kubernetes.client.errors import AbsentError, ConflictError
from cloudrec.kubernetes.manifests.guard import LEASE

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.client import Kube

_KIND = "coordination.k8s.io/v1/Lease"
LASTS_S = 90  # a round may wait for a slow cloud


@dataclass(frozen=True, kw_only=True)
class Leader:
    """One process that wants to be the keeper.

    Attributes:
        kube: a client of the cluster's API server.
        namespace: the namespace of the lease.
        identity: the process's name, unique in the cluster.
    """

    kube: Kube
    namespace: str
    identity: str

    def leads(self) -> bool:
        """Take or renew the lease; return whether this process has it until `LASTS_S` from now."""
        found = self.kube.get(_KIND, LEASE, namespace=self.namespace)
        now = self.kube.now_s()
        if found is None:
            return False  # `up` creates it
        spec = found.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder not in ("", self.identity) and now - _seconds(spec.get("renewTime")) < LASTS_S:
            return False
        moves = int(spec.get("leaseTransitions") or 0) + (holder != self.identity)
        change = {
            # The resource version makes the server refuse the change if another process was faster.
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": LASTS_S,
                "leaseTransitions": moves,
                "renewTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        try:
            self.kube.patch(_KIND, LEASE, change, namespace=self.namespace)
        except (AbsentError, ConflictError):
            return False
        return True

    def release(self) -> None:
        """Give the lease back, so that another process need not wait; no error if it has gone."""
        found = self.kube.get(_KIND, LEASE, namespace=self.namespace)
        if found is None or (found.get("spec") or {}).get("holderIdentity") != self.identity:
            return
        change = {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "spec": {"holderIdentity": None},
        }
        with suppress(AbsentError, ConflictError):
            self.kube.patch(_KIND, LEASE, change, namespace=self.namespace)


def _seconds(text: object) -> float:
    """Return a time in seconds since the epoch; 0 if it is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
