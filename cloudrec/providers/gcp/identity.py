"""Who the nodes are: a service account with no more roles than its work needs.

Runs have no Google account: IAM knows Kubernetes' own accounts, and the bucket's policy names theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import name_of
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.providers.gcp import apis, labels, policies
from cloudrec.providers.gcp.driver import GcpDriver
from cloudrec.providers.gcp.layout import account_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

ACCOUNT, BINDING = "service-account", "project-binding"
NODES = "nodes"
KINDS: Mapping[str, AbstractSet[str]] = {
    ACCOUNT: frozenset({apis.API}),
    BINDING: frozenset({ACCOUNT, apis.API}),
}

_ROLES = (
    "roles/logging.logWriter",
    "roles/monitoring.metricWriter",
    "roles/monitoring.viewer",
    "roles/stackdriver.resourceMetadata.writer",
)
_LONGEST = 256  # bytes of a service account's description
_OURS = "cloudrec-"  # what the names of all accounts of ours begin with
_WHO = "serviceAccount:"
_EMAIL = re.compile(rf"{_WHO}(?P<id>{_OURS}[a-z0-9-]+)@(?P<project>[a-z0-9.-]+)\.iam\.gserviceaccount\.com")


def resources(layout: Layout) -> list[Resource]:
    """Describe the nodes' account and its roles in the project."""
    account = layout.resource(
        ACCOUNT, NODES, needs=apis.needs(layout), properties={"email": layout.account(NODES)}
    )
    binding = layout.resource(
        BINDING,
        NODES,
        needs=(account.key,),
        properties={
            "holder": f"projects/{layout.project}",
            "member": f"{_WHO}{layout.account(NODES)}",
            "grants": tuple((role, "") for role in _ROLES),
        },
    )
    return [account, binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {ACCOUNT: AccountDriver(gcp), BINDING: ProjectBindingDriver(gcp)}


def members(gcp: Gcp, cluster: str | None) -> dict[str, Mapping[str, str]]:
    """Return the members of policies that are accounts of ours, with the tags of each."""
    found = AccountDriver(gcp).search(cluster)
    return {f"{_WHO}{seen.identity.rpartition('/')[2]}": seen.tags for seen in found}


class AccountDriver(GcpDriver):
    """Handles service accounts. Google has no client of REST for them."""

    kind = ACCOUNT

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List, and keep those whose description says that they are ours."""
        rows = self.gcp.or_none(lambda: self.gcp.repeat(self._rows)) or ()
        found = [self._observe(row) for row in rows]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by its address."""
        path = self._path(resource)
        row = self.gcp.or_none(lambda: self.gcp.repeat(lambda: self.gcp.send("iam", "GET", f"/v1/{path}")))
        return None if row is None else self._observe(row)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.gcp.repeat(lambda: self.gcp.send("iam", "GET", f"/v1/{identity}"))
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the account; IAM has no token for it, but knows a name only once."""
        del token, identities
        email = str(resource.properties["email"])
        self.gcp.fresh.add(email)
        body = {
            "accountId": email.partition("@")[0],
            "serviceAccount": {
                "displayName": f"Nodes of cluster {resource.tags[TAG_CLUSTER]}",
                "description": labels.describe(resource.tags, _LONGEST),
            },
        }
        self.gcp.send("iam", "POST", f"/v1/projects/{self.gcp.project}/serviceAccounts", body)
        return self._path(resource)

    def remove(self, observed: Observed) -> None:
        """Delete the account."""
        self.gcp.send("iam", "DELETE", f"/v1/{observed.identity}")

    def _path(self, resource: Resource) -> str:
        return f"projects/{self.gcp.project}/serviceAccounts/{resource.properties['email']}"

    def _rows(self) -> list[Mapping[str, Any]]:
        rows, token = list[Any](), ""
        while True:
            query = f"?pageSize=100{f'&pageToken={token}' if token else ''}"
            path = f"/v1/projects/{self.gcp.project}/serviceAccounts{query}"
            answer = self.gcp.send("iam", "GET", path)
            rows += answer.get("accounts", ())
            token = answer.get("nextPageToken", "")
            if not token:
                return rows

    def _observe(self, row: Mapping[str, Any]) -> Observed:
        tags = labels.described(row.get("description", ""))
        return Observed(
            kind=ACCOUNT,
            name=name_of(tags, row["email"]),
            identity=f"projects/{self.gcp.project}/serviceAccounts/{row['email']}",
            condition=Condition.READY,
            properties={"email": row["email"]},
            tags=tags,
            location=self.gcp.region,
        )


class ProjectBindingDriver(policies.BindingDriver):
    """Handles the roles that a cluster's nodes have in the project."""

    kind = BINDING

    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Look for accounts of ours, and for those that were deleted and still stand in the policy."""
        holder = f"projects/{self.gcp.project}"
        ours = {
            who: policies.inherited(tags, BINDING, NODES) for who, tags in members(self.gcp, cluster).items()
        }
        for grant in policies.grants(self.gcp, holder):
            found = _EMAIL.fullmatch(grant.who)
            if found is None or grant.who in ours or found["project"] != self.gcp.project.replace(":", "."):
                continue
            title = self._title(found["id"], cluster)
            if title:
                ours[grant.who] = policies.inherited({TAG_CLUSTER: title}, BINDING, NODES)
        return [(holder, ours)]

    def _title(self, account: str, cluster: str | None) -> str:
        """Tell whose nodes' account of this region it was; a long name holds only a part of the cluster's."""
        if cluster is not None:
            return cluster if account == account_id(cluster, self.gcp.region, NODES) else ""
        tail = f"-{self.gcp.region}-{NODES}"
        return account.removeprefix(_OURS).removesuffix(tail) if account.endswith(tail) else ""
