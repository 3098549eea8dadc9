"""Orphaned resources that controllers in a cluster created, such as load balancers and disks.

On every cloud, one resource of kind `leftovers` represents them all; deleting it sweeps them. It is deleted
after the cluster, whose controllers would create them again, and before the network, whose deletion they
block. Each cloud's module `leftovers` finds them; this module has the shared parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError
from cloudrec.findings import Finding
from cloudrec.providers.base.driver import CloudDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.engine.graph import Observed, Resource

LEFTOVERS = "leftovers"


class SomethingLeftError(Exception):
    """Orphaned resources still exist; they may be gone a little later."""


class Sweeper(CloudDriver):
    """A mix-in before a cloud's driver class, whose `remove` raises SomethingLeftError until all are gone."""

    kind = LEFTOVERS
    deadline_s = 1800.0

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return RETRY for SomethingLeftError, because a cloud's deletions take a while."""
        if isinstance(error, SomethingLeftError):
            return ErrorVerdict.RETRY
        return super().verdict(error)  # type: ignore[safe-super]  # a cloud's own driver is behind this one

    def explain(self, error: Exception) -> CloudrecError:
        """Return an error that names the remaining resources."""
        if isinstance(error, SomethingLeftError):
            return CloudrecError(f"left by the cluster, and not to be removed: {error}")
        return super().explain(error)  # type: ignore[safe-super]  # likewise


class Leftover(CloudDriver):
    """A mix-in before a cloud's driver class, for one kind of orphaned resources, which the sweeper finds."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return nothing."""
        # Only the sweeper may find them, once the cluster is gone: until then they are in use.
        del cluster
        return ()

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Raise AssertionError: no graph has a resource of this kind."""
        del token, identities
        raise AssertionError(f"{resource.key}: a leftover is never asked for")


def still_lives(name: str, provider: str, title: str) -> CloudrecError:
    """Return the error for a sweep while the cluster exists: its controllers would create everything again.

    Args:
        name: the cluster's name in the cloud.
        provider: the provider's name.
        title: the cluster's name in cloudrec.
    """
    return CloudrecError(
        f"cluster {name} exists: what it made is swept once it is gone",
        remedy=f"cloudrec down {provider} --cluster {title}",
    )


def finding(found: Iterable[Observed], provider: str, title: str) -> Finding:
    """Return preflight's finding about orphaned resources of an earlier cluster of this name."""
    left = [seen for seen in found if seen.kind != LEFTOVERS]
    return Finding(
        check="leftovers",
        ok=not left,
        found=", ".join(f"{seen.kind} {seen.identity}" for seen in left) or "none",
        remedy=f"cloudrec down {provider} --cluster {title} removes them",
        blocks=False,
    )
