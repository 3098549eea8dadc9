"""The IAM grant of the guard in a cluster: it may change that cluster, to scale its pools, and nothing else.

The guard has no Google service account: IAM knows its Kubernetes service account. IAM does not distinguish
accounts of the same name in different clusters of a project. So each cluster's grant has its own title, and a
condition that names the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed, Properties
from cloudrec.providers.base.driver import needed
from cloudrec.providers.base.layout import guard_account_of
from cloudrec.providers.gcp.api import policies
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.layout import TAG_REGION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

BINDING = "guard-binding"
KINDS: Mapping[str, AbstractSet[str]] = {BINDING: frozenset({CLUSTER})}

_AT = "#"  # in an identity: HOLDER#TITLE


@dataclass(frozen=True, kw_only=True)
class GuardBindingProperties(Properties):
    """The requested properties of a guard's grant.

    Attributes:
        member: the guard's Kubernetes service account in IAM: "principal://...".
        role: the role of the guard.
    """

    member: str
    role: str


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the guard's grant for its cluster."""
    binding = layout.resource(
        BINDING,
        needs=(layout.key(CLUSTER),),  # the workload identity pool exists once the project has a cluster
        properties=GuardBindingProperties(
            member=layout.principal(guard_account_of(layout.settings.service_account)),
            role=layout.settings.guard_role or layout.guard_role,
        ),
        hourly_usd=FREE,
    )
    return [binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {BINDING: GuardBindingDriver(gcp)}


class GuardBindingDriver(GcpDriver[GuardBindingProperties]):
    """Handles the grants of guards. The identity is HOLDER#TITLE, with the title of the grant's condition.

    Attributes:
        title: the beginning of a condition's title: "cloudrec guard REGION CLUSTER".
    """

    kind = BINDING
    title: ClassVar[str] = "cloudrec guard"
    changeable = frozenset({"member", "role"})

    @property
    def holder(self) -> str:
        """The project, whose policy has the grants."""
        return f"projects/{self.gcp.project}"

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the grants in the project's policy that have a guard's title."""
        there = policies.grants(self.gcp, self.holder)
        found = [self._observe(grant) for grant in there if self._words(grant.title)]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource[GuardBindingProperties]) -> Observed | None:
        """Find the grant in the policy. It does not name the owner, so that the resource's tags are used."""
        found = [seen for seen in self.search(resource.tags[TAG_CLUSTER]) if seen.key == resource.key]
        return replace(found[0], tags=resource.tags) if found else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY if the policy has the grant, else GONE."""
        return (Condition.READY if self._titled(identity) else Condition.GONE), ""

    def make(
        self, resource: Resource[GuardBindingProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Grant the role. The API has no idempotency token; a repeated grant changes nothing."""
        del token
        title = f"{self.title} {resource.tags[TAG_REGION]} {resource.tags[TAG_CLUSTER]}"
        identity = f"{self.holder}{_AT}{title}"
        self.complete(resource, identity, identities=identities)
        return identity

    def complete(
        self, resource: Resource[GuardBindingProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Replace the grants of this title with the requested one."""
        path = needed(resource, identities, CLUSTER)
        wanted = policies.Grant(
            role=resource.properties.role,
            member=resource.properties.member,
            title=identity.partition(_AT)[2],
            # The cluster's pools are below it. Without the slash another cluster's longer name would do too.
            expression=f'resource.name == "{path}" || resource.name.startsWith("{path}/")',
        )
        policies.replace(self.gcp, self.holder, self._titled(identity), [wanted])

    def remove(self, observed: Observed) -> None:
        """Remove the grant."""
        policies.replace(self.gcp, self.holder, self._titled(observed.identity), ())

    def _titled(self, identity: str) -> list[policies.Grant]:
        holder, _, title = identity.partition(_AT)
        return [grant for grant in policies.grants(self.gcp, holder) if grant.title == title]

    def _observe(self, grant: policies.Grant) -> Observed:
        region, title = self._words(grant.title)
        tags = {TAG_CLUSTER: title, TAG_KEY: f"{self.kind}/{title}", TAG_REGION: region}
        return Observed(
            kind=self.kind,
            name=title,
            identity=f"{self.holder}{_AT}{grant.title}",
            condition=Condition.READY,
            properties={"member": grant.member, "role": grant.role},
            tags=tags,
            location=region,
            hourly_usd=FREE,
        )

    def _words(self, title: str) -> tuple[str, ...]:
        """Return the region and the cluster in a title; empty if it is another one."""
        front = f"{self.title} "
        words = tuple(title.removeprefix(front).split(" "))
        return words if title.startswith(front) and len(words) == len(("region", "cluster")) else ()
