"""Federated credentials: Entra ID accepts the tokens of the cluster's service accounts for an identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, ErrorVerdict, Observed, Properties
from cloudrec.errors import CloudrecError
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.rows import group_name, inherited, place
from cloudrec.providers.azure.api.tracked import Calls, GroupDriver, group_names
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.base.driver import is_ours, name_of, needed
from cloudrec.providers.base.layout import guard_account_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout

FEDERATED = "federated-credential"
_CLUSTER = "cluster"  # the kind of the AKS cluster, in another module
KINDS: Mapping[str, AbstractSet[str]] = {FEDERATED: frozenset({identity.IDENTITY, _CLUSTER})}

# The audience of the tokens that AKS's workload identity webhook mounts into pods.
_AUDIENCE = "api://AzureADTokenExchange"


@dataclass(frozen=True, kw_only=True)
class FederatedCredentialProperties(Properties):
    """The requested properties of a federated credential.

    Attributes:
        identity: the name of the identity that it belongs to, and its own.
        subject: the service account whose tokens are accepted for the identity, as the tokens name it.
        issuer_is_the_clusters: whether it trusts the tokens of the cluster as it is now.
    """

    identity: str
    subject: str
    issuer_is_the_clusters: bool = True


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the credentials of the runs' service account and of the guard's."""
    runs = layout.settings.service_account
    return [
        _credential(layout, identity.POD, runs),
        _credential(layout, identity.GUARD, guard_account_of(runs)),
    ]


def _credential(layout: AzureLayout, suffix: str, account: str) -> Resource[FederatedCredentialProperties]:
    namespace, _, name = account.partition("/")
    return layout.resource(
        FEDERATED,
        suffix,
        needs=(layout.key(identity.IDENTITY, suffix), layout.key(_CLUSTER)),
        properties=FederatedCredentialProperties(
            identity=f"{layout.name}-{suffix}", subject=f"system:serviceaccount:{namespace}:{name}"
        ),
        hourly_usd=FREE,
    )


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the driver, by kind."""
    return {FEDERATED: FederatedCredentialDriver(azure)}


class NoIssuerError(Exception):
    """Azure does not report the cluster or its token issuer, as for some time after it is created."""


class FederatedCredentialDriver(
    GroupDriver["models.managedidentity.FederatedIdentityCredential", FederatedCredentialProperties]
):
    """Handles federated credentials. They have no tags, and belong to the cluster of their identity."""

    kind = FEDERATED
    of_type = f"{identity.IDENTITY_TYPE}/federatedIdentityCredentials"
    changeable = frozenset({"subject", "issuer_is_the_clusters"})
    poll_s = 1.0

    @property
    def calls(self) -> Calls[models.managedidentity.FederatedIdentityCredential]:
        """The client's methods for this kind."""
        of = self.azure.managedidentity.federated_identity_credentials
        return Calls(
            get=of.get, put=of.create_or_update, delete=of.delete, puts_at_once=True, deletes_at_once=True
        )

    def path(self, resource: Resource[FederatedCredentialProperties]) -> tuple[str, ...]:
        """Return the identity's name and the credential's, which are the same."""
        name = resource.properties.identity
        return name, name

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the credentials of the clusters' identities."""
        of_identities = self.azure.managedidentity.user_assigned_identities
        credentials = self.azure.managedidentity.federated_identity_credentials
        owners = [
            row
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(of_identities.list_by_resource_group, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [
            self._within(owner, row)
            for owner in owners
            for row in self.azure.rows(credentials.list, ids.group_of(owner.id), owner.name or "")
        ]

    def fetch(self, resource: Resource[FederatedCredentialProperties]) -> Observed | None:
        """Return the credential, with whether its issuer is the current cluster's; None if there is none."""
        group, names = group_name(resource.tags[TAG_CLUSTER]), self.path(resource)
        of_identities = self.azure.managedidentity.user_assigned_identities
        owner = self.azure.get(of_identities.get, group, names[0])
        row = None if owner is None else self.azure.get(self.calls.get, group, *names)
        if owner is None or row is None:
            return None
        # A cluster that is created again gets a new issuer, and the credential must follow.
        return self._within(owner, row, self._issuer(group))

    def body(
        self, resource: Resource[FederatedCredentialProperties], identities: Mapping[str, str]
    ) -> models.managedidentity.FederatedIdentityCredential:
        """Return a credential that accepts the service account's tokens for the identity.

        Raises:
            NoIssuerError: Azure does not report the cluster's token issuer yet.
        """
        cluster = needed(resource, identities, _CLUSTER)
        issuer = self._issuer(ids.group_of(cluster))
        if not issuer:
            raise NoIssuerError(cluster)
        return models.managedidentity.FederatedIdentityCredential(
            issuer=issuer,
            subject=resource.properties.subject,
            audiences=[_AUDIENCE],
        )

    def change(
        self,
        resource: Resource[FederatedCredentialProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Put the credential again."""
        del observed
        self.put(resource, identities)

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return whether the call may be made again; a missing issuer appears after a while."""
        return ErrorVerdict.RETRY if isinstance(error, NoIssuerError) else super().verdict(error)

    def explain(self, error: Exception) -> CloudrecError:
        """Return an error of cloudrec that names the cluster without an issuer."""
        if isinstance(error, NoIssuerError):
            return CloudrecError(
                f"Azure does not report the token issuer of {error}",
                remedy="run the command again: it continues from here",
            )
        return super().explain(error)

    def _issuer(self, group: str) -> str:
        """Return the URL of the token issuer of the cluster in this group; empty if Azure reports none."""
        clusters = self.azure.containerservice.managed_clusters
        row = self.azure.get(clusters.get, group, group)
        return str(row.oidc_issuer_profile.issuer_url or "") if row and row.oidc_issuer_profile else ""

    def _within(
        self,
        owner: models.managedidentity.Identity,
        row: models.managedidentity.FederatedIdentityCredential,
        issuer: str | None = None,
    ) -> Observed:
        tags = dict(owner.tags or {})
        name = name_of(tags, row.name or "")
        # A search does not read the cluster; without an issuer, drift leaves the property out.
        is_the_clusters = {} if issuer is None else {"issuer_is_the_clusters": row.issuer == issuer}
        return Observed(
            kind=FEDERATED,
            name=name,
            identity=self.identity_of(row.id),
            condition=Condition.READY,
            properties={"subject": row.subject, **is_the_clusters},
            tags=inherited(tags, f"{FEDERATED}/{name}") if TAG_CLUSTER in tags else {},
            location=place(owner.location),
            hourly_usd=FREE,
        )
