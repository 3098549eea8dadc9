"""What the guard in a cluster may do: change that cluster, so that it can scale its pools, and nothing else.

It has no Google account: IAM knows Kubernetes' own. Accounts of the same name in all clusters of a project
are one to IAM, so that each cluster's grant has a title of its own, and a condition that names the cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.cloud.driver import needed
from cloudrec.cloud.guard import account_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed
from cloudrec.providers.gcp import policies
from cloudrec.providers.gcp.driver import GcpDriver
from cloudrec.providers.gcp.gke import CLUSTER
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

BINDING = "guard-binding"
KINDS: Mapping[str, AbstractSet[str]] = {BINDING: frozenset({CLUSTER})}

_TITLE = "cloudrec guard"  # what the titles of our conditions begin with: "cloudrec guard REGION NAME"
_AT = "#"  # in an identity: HOLDER#TITLE


def resources(layout: Layout) -> list[Resource]:
    """Describe what the guard may do with its cluster."""
    binding = layout.resource(
        BINDING,
        needs=(layout.key(CLUSTER),),  # whose pool of identities knows the guard
        properties={
            "member": layout.principal(account_of(layout.settings.service_account)),
            "role": layout.settings.guard_role,
        },
    )
    return [binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by its kind."""
    return {BINDING: GuardBindingDriver(gcp)}


class GuardBindingDriver(GcpDriver):
    """Handles guards' grants. The identity is HOLDER#TITLE, by the title of the grant's condition."""

    kind = BINDING
    changeable = frozenset({"member", "role"})

    @property
    def holder(self) -> str:
        """The policy."""
        return f"projects/{self.gcp.project}"

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Read the project's policy, and keep what bears a title of ours."""
        found = [
            self._observe(grant) for grant in policies.grants(self.gcp, self.holder) if _told(grant.title)
        ]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for the title in the policy; it does not tell whose it is, but no cluster has two."""
        found = [seen for seen in self.search(resource.tags[TAG_CLUSTER]) if seen.key == resource.key]
        return replace(found[0], tags=resource.tags) if found else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look for the title in the policy."""
        return (Condition.READY if self._titled(identity) else Condition.GONE), ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Grant it; Google has no token for it, but a second time it changes nothing."""
        del token
        title = f"{_TITLE} {resource.tags[TAG_REGION]} {resource.tags[TAG_CLUSTER]}"
        identity = f"{self.holder}{_AT}{title}"
        self.complete(resource, identity, identities=identities)
        return identity

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Grant what is wanted in the place of what there was."""
        path = needed(resource, identities, CLUSTER)
        wanted = policies.Grant(
            role=resource.properties["role"],
            member=resource.properties["member"],
            title=identity.partition(_AT)[2],
            expression=f'resource.name.startsWith("{path}")',
        )
        policies.replace(self.gcp, self.holder, self._titled(identity), [wanted])

    def remove(self, observed: Observed) -> None:
        """Take it back."""
        policies.replace(self.gcp, self.holder, self._titled(observed.identity), ())

    def _titled(self, identity: str) -> list[policies.Grant]:
        holder, _, title = identity.partition(_AT)
        return [grant for grant in policies.grants(self.gcp, holder) if grant.title == title]

    def _observe(self, grant: policies.Grant) -> Observed:
        region, title = _told(grant.title)
        tags = {TAG_CLUSTER: title, TAG_KEY: f"{BINDING}/{title}", TAG_REGION: region}
        return Observed(
            kind=BINDING,
            name=title,
            identity=f"{self.holder}{_AT}{grant.title}",
            condition=Condition.READY,
            properties={"member": grant.member, "role": grant.role},
            tags=tags,
            location=region,
        )


def _told(title: str) -> tuple[str, ...]:
    """Return region and cluster that a title tells; nothing where it is not ours."""
    told = tuple(title.removeprefix(f"{_TITLE} ").split(" "))
    return told if title.startswith(f"{_TITLE} ") and len(told) == len(("region", "cluster")) else ()
