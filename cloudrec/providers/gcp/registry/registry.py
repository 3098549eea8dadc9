"""The repository for the trainer's images, and the nodes' permission to pull from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.auth.transport.requests import Request
from pydantic import SecretStr

from cloudrec.engine.cost import BY_USE, FREE
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed, Properties
from cloudrec.errors import PreflightError
from cloudrec.providers.base.driver import name_of
from cloudrec.providers.base.protocol import Registry
from cloudrec.providers.gcp import access
from cloudrec.providers.gcp.api import apis, ids, labels, operations, policies, sdk
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec.providers.gcp.identity import identity, prepared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

REPOSITORY, BINDING = "repository", "repository-binding"
KINDS: Mapping[str, AbstractSet[str]] = {
    REPOSITORY: frozenset({apis.API}),
    BINDING: frozenset({REPOSITORY, identity.ACCOUNT}),
}

_SERVICE = "artifactregistry"
_USERNAME = "oauth2accesstoken"  # the user name for a login with an access token
_ROLE = "roles/artifactregistry.reader"


@dataclass(frozen=True, kw_only=True)
class RepositoryProperties(Properties):
    """The requested properties of an image repository.

    Attributes:
        path: "projects/P/locations/REGION/repositories/NAME".
        immutable: whether a tag can never be moved to another image.
        kms_key: the path of the key that encrypts the images; empty for Google's.
    """

    path: str
    immutable: bool
    kms_key: str


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the repository, and the permission of a cluster's own account to pull from it."""
    repository = layout.resource(
        REPOSITORY,
        needs=apis.needs(layout),
        properties=RepositoryProperties(
            path=layout.repository_path, immutable=True, kms_key=layout.settings.kms_key or ""
        ),
        hourly_usd=BY_USE,
    )
    if layout.shared_account:
        return [repository]
    binding = layout.resource(
        BINDING,
        prepared.NODES,
        needs=(repository.key, layout.key(identity.ACCOUNT, prepared.NODES)),
        properties=policies.BindingProperties(
            holder=layout.repository_path,
            member=f"serviceAccount:{layout.node_account}",
            grants=((_ROLE, ""),),
        ),
        hourly_usd=FREE,
    )
    return [repository, binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {REPOSITORY: GcpRepositoryDriver(gcp), BINDING: RepositoryBindingDriver(gcp)}


def login(layout: GcpLayout, gcp: Gcp) -> Registry:
    """Return a login to Artifact Registry, valid for an hour; PreflightError if there is no repository."""
    registry = gcp.rest(sdk.artifactregistry.ArtifactRegistryClient)
    request = sdk.artifactregistry.GetRepositoryRequest(name=layout.repository_path)
    if gcp.get(registry.get_repository, request) is None:
        raise PreflightError(
            f"the image repository {layout.repository_path} does not exist",
            remedy=f"cloudrec up gcp --cluster {layout.title}",
        )
    gcp.credentials.refresh(Request())
    address = f"{layout.region}-docker.pkg.dev"
    project = layout.project.replace(":", "/")  # a project of a domain is called example.com:name
    return Registry(
        address=address,
        repository=f"{address}/{project}/{ids.name(layout.repository_path)}/{access.IMAGE}",
        username=_USERNAME,
        password=SecretStr(str(gcp.credentials.token)),
    )


class GcpRepositoryDriver(GcpDriver[RepositoryProperties]):
    """Handles image repositories."""

    kind = REPOSITORY
    changeable = frozenset({"immutable"})

    @property
    def registry(self) -> sdk.artifactregistry.ArtifactRegistryClient:
        """The client of Artifact Registry."""
        return self.gcp.rest(sdk.artifactregistry.ArtifactRegistryClient)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the region's repositories that have the cluster's labels."""
        parent = f"projects/{self.gcp.project}/locations/{self.gcp.region}"
        request = sdk.artifactregistry.ListRepositoriesRequest(parent=parent)
        rows = self.gcp.rows(self.registry.list_repositories, request)
        found = [self._observe(row) for row in rows]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource[RepositoryProperties]) -> Observed | None:
        """Read the repository by its path; None if it does not exist."""
        request = sdk.artifactregistry.GetRepositoryRequest(name=resource.properties.path)
        row = self.gcp.get(self.registry.get_repository, request)
        return None if row is None else self._observe(row)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; raises NotFound if the repository does not exist."""
        request = sdk.artifactregistry.GetRepositoryRequest(name=identity)
        self.gcp.read(self.registry.get_repository, request)
        return Condition.READY, ""

    def make(
        self, resource: Resource[RepositoryProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the repository. The API has no idempotency token, but refuses a second one of its name."""
        del token, identities
        parent, _, name = resource.properties.path.partition("/repositories/")
        of = sdk.artifactregistry
        repository = of.Repository(
            format_=of.Repository.Format.DOCKER,
            description="Images of cloudrec's trainer",
            labels=labels.encode(resource.tags),
            docker_config=_docker(resource),
            kms_key_name=resource.properties.kms_key,
        )
        request = of.CreateRepositoryRequest(parent=parent, repository_id=name, repository=repository)

        def once() -> str:
            return operations.of_service(_SERVICE, self.gcp.call(self.registry.create_repository, request))

        return self.begin(f"{parent}/repositories/{name}", once)

    def change(
        self, resource: Resource[RepositoryProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Make the tags immutable again."""
        del identities
        of = sdk.artifactregistry
        request = of.UpdateRepositoryRequest(
            repository=of.Repository(name=observed.identity, docker_config=_docker(resource)),
            update_mask={"paths": ["docker_config.immutable_tags"]},
        )
        self.gcp.call(self.registry.update_repository, request)

    def remove(self, observed: Observed) -> None:
        """Start the deletion of the repository with all its images."""
        request = sdk.artifactregistry.DeleteRepositoryRequest(name=observed.identity)

        def once() -> str:
            return operations.of_service(_SERVICE, self.gcp.call(self.registry.delete_repository, request))

        self.begin(observed.identity, once, is_removal=True)

    def _observe(self, row: sdk.artifactregistry.Repository) -> Observed:
        tags = labels.decode(dict(row.labels))
        return Observed(
            kind=REPOSITORY,
            name=name_of(tags, ids.name(row.name)),
            identity=row.name,
            condition=Condition.READY,
            properties={
                "immutable": row.docker_config.immutable_tags,
                "kms_key": row.kms_key_name,
            },
            tags=tags,
            location=self.gcp.region,
            created=row.create_time.timestamp() if row.create_time else None,
            hourly_usd=BY_USE,
        )


def _docker(
    resource: Resource[RepositoryProperties],
) -> sdk.artifactregistry.Repository.DockerRepositoryConfig:
    return sdk.artifactregistry.Repository.DockerRepositoryConfig(
        immutable_tags=resource.properties.immutable
    )


class RepositoryBindingDriver(policies.BindingDriver):
    """Handles the permission of nodes to pull from a repository."""

    kind = BINDING

    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Return the clusters' repositories, each with the accounts of that cluster's nodes."""
        there = identity.members(self.gcp, cluster)
        ours = {member: policies.inherited(tags, BINDING, prepared.NODES) for member, tags in there.items()}
        for seen in GcpRepositoryDriver(self.gcp).search(cluster):
            yield (
                seen.identity,
                {member: tags for member, tags in ours.items() if tags[TAG_CLUSTER] == seen.cluster},
            )
