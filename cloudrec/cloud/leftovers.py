"""What controllers inside a cluster made and left: on every cloud a resource, whose removal is a sweep.

It goes after the cluster, which would make everything anew, and before the network, which it would keep. Each
cloud's `leftovers` looks for what is left there; this is what they have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.cloud.driver import CloudDriver
from cloudrec.engine.graph import Verdict
from cloudrec.errors import CloudrecError
from cloudrec.provider import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.engine.graph import Observed, Resource

LEFTOVERS = "leftovers"


class SomethingLeftError(Exception):
    """Something is still there; a little later it may be gone."""


class Sweeper(CloudDriver):
    """Stands before a cloud's own driver: its `remove` raises SomethingLeftError until nothing is left."""

    kind = LEFTOVERS
    deadline_s = 1800.0

    def verdict(self, error: Exception) -> Verdict:
        """What is left may be gone a little later."""
        if isinstance(error, SomethingLeftError):
            return Verdict.RETRY
        return super().verdict(error)  # type: ignore[safe-super]  # a cloud's own driver is behind this one

    def explain(self, error: Exception) -> CloudrecError:
        """Name what is left."""
        if isinstance(error, SomethingLeftError):
            return CloudrecError(f"left by the cluster, and not to be removed: {error}")
        return super().explain(error)  # type: ignore[safe-super]  # likewise


class Leftover(CloudDriver):
    """Stands before a cloud's own driver of one kind of leftovers, which are found by the sweeper alone."""

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """The sweeper looks for all kinds at once, where the cluster is gone."""
        del cluster
        return ()

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """No resource is of this kind."""
        del token, identities
        raise AssertionError(f"{resource.key}: a leftover is never asked for")


def still_lives(name: str, provider: str, title: str) -> CloudrecError:
    """Return why nothing is swept: the cluster is there, and with it those who would make everything anew.

    Args:
        name: the cluster's with the cloud.
        provider: the cloud's with us.
        title: the cluster's with us.
    """
    return CloudrecError(
        f"cluster {name} exists: what it made is swept once it is gone",
        remedy=f"cloudrec down {provider} --cluster {title}",
    )


def finding(found: Iterable[Observed], provider: str, title: str) -> Finding:
    """Return what preflight says of leftovers of an earlier cluster of this name."""
    left = [seen for seen in found if seen.kind != LEFTOVERS]
    return Finding(
        check="leftovers",
        ok=not left,
        found=", ".join(f"{seen.kind} {seen.identity}" for seen in left) or "none",
        remedy=f"cloudrec down {provider} --cluster {title} removes them",
        blocks=False,
    )
