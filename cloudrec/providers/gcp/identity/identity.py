"""The service account of the nodes, and its roles in the project.

Runs have no Google service account: the bucket's policy names their Kubernetes service account.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, Properties
from cloudrec.providers.base.driver import name_of
from cloudrec.providers.gcp.api import apis, labels, policies
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec.providers.gcp.identity.prepared import END, NODES
from cloudrec.providers.gcp.layout import account_address, account_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

ACCOUNT, BINDING = "service-account", "project-binding"
KINDS: Mapping[str, AbstractSet[str]] = {
    ACCOUNT: frozenset({apis.API}),
    BINDING: frozenset({ACCOUNT, apis.API}),
}

_ROLES = (
    "roles/logging.logWriter",
    "roles/monitoring.metricWriter",
    "roles/monitoring.viewer",
    "roles/serviceusage.serviceUsageConsumer",  # image streaming needs it of an account that is not Google's
    "roles/stackdriver.resourceMetadata.writer",
)
# What a cluster grants on its repository, an administrator grants in the project.
SHARED_ROLES = (*_ROLES, "roles/artifactregistry.reader")
_LONGEST = 256  # the limit of a service account's description in bytes
_OURS = "cloudrec-"  # the beginning of the accounts' names
_MEMBER = "serviceAccount:"
_EMAIL = re.compile(rf"{_MEMBER}(?P<id>{_OURS}[a-z0-9-]+)@[a-z0-9.-]+\.iam\.gserviceaccount\.com")


@dataclass(frozen=True, kw_only=True)
class AccountProperties(Properties):
    """The requested properties of a service account.

    Attributes:
        email: its address.
        shown: what the console shows as its name, before that of the cluster.
    """

    email: str
    shown: str = "Nodes"


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the nodes' account and its roles in the project; without these if the account is shared.

    Its roles are then the administrator's, who made it for all clusters of the project. A cluster with an end
    has another account, which ends it: the nodes must not have its role. Where the end can move, that account
    starts a workflow. IAM knows no names of workflows, so this role is for all workflows of the project.
    """
    ender = layout.resource(
        ACCOUNT,
        END,
        needs=apis.needs(layout),
        properties=AccountProperties(email=layout.end_account, shown="End"),
        is_shared=bool(layout.shared_end),
        hourly_usd=FREE,
    )
    starter = layout.resource(
        BINDING,
        END,
        needs=(ender.key,),
        properties=policies.BindingProperties(
            holder=f"projects/{layout.project}",
            member=f"{_MEMBER}{layout.end_account}",
            grants=((layout.starter_role, ""),),
        ),
        hourly_usd=FREE,
    )
    return [
        *_of_nodes(layout),
        *([ender] if layout.cluster.expires else []),
        *([starter] if starter_keys(layout) else []),
    ]


def _of_nodes(layout: GcpLayout) -> list[Resource]:
    account = layout.resource(
        ACCOUNT,
        NODES,
        needs=apis.needs(layout),
        properties=AccountProperties(email=layout.node_account),
        is_shared=bool(layout.shared_account),
        hourly_usd=FREE,
    )
    if layout.shared_account:
        return [account]
    binding = layout.resource(
        BINDING,
        NODES,
        needs=(account.key,),
        properties=policies.BindingProperties(
            holder=f"projects/{layout.project}",
            member=f"{_MEMBER}{layout.node_account}",
            grants=tuple((role, "") for role in _ROLES),
        ),
        hourly_usd=FREE,
    )
    return [account, binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {ACCOUNT: GcpAccountDriver(gcp), BINDING: ProjectBindingDriver(gcp)}


def keys(layout: GcpLayout) -> tuple[str, ...]:
    """Return the keys of the nodes' account and, if the cluster has its own, of its roles."""
    account = layout.key(ACCOUNT, NODES)
    return (account,) if layout.shared_account else (account, layout.key(BINDING, NODES))


def starter_keys(layout: GcpLayout) -> tuple[str, ...]:
    """Return the key of the role with which the end's account starts a workflow.

    It is empty without a workflow; an administrator's account has the role from the administrator.
    """
    is_own = layout.is_end_movable and not layout.shared_end
    return (layout.key(BINDING, END),) if is_own else ()


def members(gcp: Gcp, cluster: str | None) -> dict[str, Mapping[str, str]]:
    """Return cloudrec's service accounts as members of policies, each with its tags."""
    found = GcpAccountDriver(gcp).search(cluster)
    return {f"{_MEMBER}{seen.identity.rpartition('/')[2]}": seen.tags for seen in found}


class GcpAccountDriver(GcpDriver[AccountProperties]):
    """Handles service accounts, by REST calls: the SDK has no REST client for IAM."""

    kind = ACCOUNT

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the accounts that have the cluster's tags in their description."""
        rows = self.gcp.or_none(lambda: self.gcp.repeat(self._rows)) or ()
        found = [self._observe(row) for row in rows]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource[AccountProperties]) -> Observed | None:
        """Read the account by its address; None if it does not exist."""
        path = self._path(resource)
        row = self.gcp.or_none(lambda: self.gcp.repeat(lambda: self.gcp.send("iam", "GET", f"/v1/{path}")))
        if row is None:
            return None
        seen = self._observe(row)
        # The administrator's account has no tags: under its own key it would belong to no resource.
        return replace(seen, name=resource.name, tags=resource.tags) if resource.is_shared else seen

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; raises NotFound if the account does not exist."""
        self.gcp.repeat(lambda: self.gcp.send("iam", "GET", f"/v1/{identity}"))
        return Condition.READY, ""

    def make(
        self, resource: Resource[AccountProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the account. IAM has no idempotency token, but refuses a second account of the same name."""
        del token, identities
        email = resource.properties.email
        # Other services may not know a new account for minutes: refusals that name it are repeated.
        self.gcp.fresh.add(email)
        body = {
            "accountId": email.partition("@")[0],
            "serviceAccount": {
                "displayName": f"{resource.properties.shown} of cluster {resource.tags[TAG_CLUSTER]}",
                "description": labels.describe(resource.tags, _LONGEST),
            },
        }
        self.gcp.send("iam", "POST", f"/v1/projects/{self.gcp.project}/serviceAccounts", body)
        return self._path(resource)

    def remove(self, observed: Observed) -> None:
        """Delete the account."""
        self.gcp.send("iam", "DELETE", f"/v1/{observed.identity}")

    def _path(self, resource: Resource[AccountProperties]) -> str:
        return f"projects/{self.gcp.project}/serviceAccounts/{resource.properties.email}"

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
            hourly_usd=FREE,
        )


class ProjectBindingDriver(policies.BindingDriver):
    """Handles the roles of a cluster's accounts in the project."""

    kind = BINDING

    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Return the accounts of the clusters, and deleted ones that the policy still names."""
        holder = f"projects/{self.gcp.project}"
        ours = {
            member: policies.inherited(tags, BINDING, _suffix(tags))
            for member, tags in members(self.gcp, cluster).items()
        }
        for grant in policies.grants(self.gcp, holder):
            found = _EMAIL.fullmatch(grant.account)
            if (
                found is None
                or grant.account in ours
                or found[0] != f"{_MEMBER}{account_address(found['id'], self.gcp.project)}"
            ):
                continue
            for suffix in (NODES, END):
                if title := self._title(found["id"], suffix, cluster):
                    ours[grant.account] = policies.inherited({TAG_CLUSTER: title}, BINDING, suffix)
        return [(holder, ours)]

    def _title(self, account: str, suffix: str, cluster: str | None) -> str:
        """Return the cluster of a deleted account; empty if it is of another cluster, region or purpose.

        With `cluster` None, a shortened account name gives only the beginning of the cluster's name.
        """
        if cluster is not None:
            return cluster if account == account_id(cluster, self.gcp.region, suffix) else ""
        tail = f"-{self.gcp.region}-{suffix}"
        return account.removeprefix(_OURS).removesuffix(tail) if account.endswith(tail) else ""


def _suffix(tags: Mapping[str, str]) -> str:
    """Return what an account is for, from its tags: the end of its key."""
    return END if name_of(tags, "").endswith(f"-{END}") else NODES
