"""How runs take on their identity: Entra ID takes the cluster's word for who a service account is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cloud.driver import is_ours, needed
from cloudrec.cloud.guard import account_of
from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, Condition, Observed, Verdict
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure import identity, ids
from cloudrec.providers.azure.rows import group_name, group_names, inherited, place
from cloudrec.providers.azure.tracked import GroupDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.client import Azure
    from cloudrec.providers.azure.driver import AzureDriver
    from cloudrec.providers.azure.layout import Layout

FEDERATED = "federated-credential"
_CLUSTER = "cluster"  # which knows nothing of this file
KINDS: Mapping[str, AbstractSet[str]] = {FEDERATED: frozenset({identity.IDENTITY, _CLUSTER})}

_AUDIENCE = "api://AzureADTokenExchange"


def resources(layout: Layout) -> list[Resource]:
    """Describe the credentials of the runs' service account, and of the guard's."""
    runs = layout.settings.service_account
    return [
        _credential(layout, identity.POD, runs),
        _credential(layout, identity.GUARD, account_of(runs)),
    ]


def _credential(layout: Layout, suffix: str, account: str) -> Resource:
    namespace, _, name = account.partition("/")
    return layout.resource(
        FEDERATED,
        suffix,
        needs=(layout.key(identity.IDENTITY, suffix), layout.key(_CLUSTER)),
        properties={
            "identity": f"{layout.name}-{suffix}",
            "subject": f"system:serviceaccount:{namespace}:{name}",
            "issuer_is_the_clusters": True,
        },
    )


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver by its kind."""
    return {FEDERATED: FederatedCredentialDriver(azure)}


class NoIssuerError(Exception):
    """The cluster, or who issues its tokens, is not to be seen; of one just made, a little later it is."""


class FederatedCredentialDriver(GroupDriver):
    """Handles federated credentials, which bear no tags: they are whose identity they are of."""

    kind = FEDERATED
    service, collection = "managedidentity", "federated_identity_credentials"
    of_type = f"{identity.IDENTITY_TYPE}/federatedIdentityCredentials"
    putting, deleting = "create_or_update", "delete"
    changeable = frozenset({"subject", "issuer_is_the_clusters"})
    poll_s = 1.0

    def path(self, resource: Resource) -> tuple[str, ...]:
        """Return the identity's name and its own, which is the same."""
        name = str(resource.properties["identity"])
        return name, name

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List what the clusters' identities have."""
        of_identities = self.azure.client("managedidentity").user_assigned_identities
        owners = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(of_identities.list_by_resource_group, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [
            self._within(owner, row)
            for owner in owners
            for row in self.azure.rows(self.calls.list, ids.group_of(owner.id), owner.name)
        ]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look for it in its identity, and whether its issuer is the cluster as it is now."""
        group, names = group_name(resource.tags[TAG_CLUSTER]), self.path(resource)
        of_identities = self.azure.client("managedidentity").user_assigned_identities
        owner = self.azure.get(of_identities.get, group, names[0])
        row = None if owner is None else self.azure.get(self.calls.get, group, *names)
        return None if row is None else self._within(owner, row, self._issuer(group))

    def body(self, resource: Resource, identities: Mapping[str, str]) -> Any:  # noqa: ANN401 - the SDK's model
        """Return what lets the service account's token stand for the identity.

        Raises:
            NoIssuerError: nobody knows yet whose tokens to take.
        """
        cluster = needed(resource, identities, _CLUSTER)
        issuer = self._issuer(ids.group_of(cluster))
        if not issuer:
            raise NoIssuerError(cluster)
        return self.models.FederatedIdentityCredential(
            issuer=issuer,
            subject=resource.properties["subject"],
            audiences=[_AUDIENCE],
        )

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Put it again."""
        del observed
        self.put(resource, identities)

    def verdict(self, error: Exception) -> Verdict:
        """What stands is seen at last."""
        return Verdict.RETRY if isinstance(error, NoIssuerError) else super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Say what is not to be seen."""
        if isinstance(error, NoIssuerError):
            return CloudrecError(
                f"Azure does not tell who issues the tokens of {error}",
                remedy="run the command again: it goes on from here",
            )
        return super().explain(error)

    def _issuer(self, group: str) -> str:
        """Return who issues the tokens of the cluster in this group; empty where none is to be seen."""
        clusters = self.azure.client("containerservice").managed_clusters
        row = self.azure.get(clusters.get, group, group)
        return str(row.oidc_issuer_profile.issuer_url or "") if row and row.oidc_issuer_profile else ""

    def _within(self, owner: Any, row: Any, issuer: str | None = None) -> Observed:  # noqa: ANN401 - the SDK's models
        tags = dict(owner.tags or {})
        name = tags.get(TAG_KEY, "").partition("/")[2] or row.name
        is_the_clusters = {} if issuer is None else {"issuer_is_the_clusters": row.issuer == issuer}
        return Observed(
            kind=FEDERATED,
            name=name,
            identity=ids.resource(
                self.azure.subscription, ids.group_of(row.id), self.of_type, *ids.names(row.id)
            ),
            condition=Condition.READY,
            properties={"subject": row.subject, **is_the_clusters},
            tags=inherited(tags, f"{FEDERATED}/{name}") if TAG_CLUSTER in tags else {},
            location=place(owner.location),
        )
