"""The repository of the trainer's images, and that nodes may pull from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.auth.transport.requests import Request
from pydantic import SecretStr

from cloudrec.cloud.driver import name_of
from cloudrec.engine.graph import TAG_CLUSTER, Condition, Observed
from cloudrec.errors import PreflightError
from cloudrec.provider import Registry
from cloudrec.providers.gcp import access, apis, identity, ids, labels, operations, policies
from cloudrec.providers.gcp.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

REPOSITORY, BINDING = "repository", "repository-binding"
KINDS: Mapping[str, AbstractSet[str]] = {
    REPOSITORY: frozenset({apis.API}),
    BINDING: frozenset({REPOSITORY, identity.ACCOUNT}),
}

_SERVICE = "artifactregistry"
_USERNAME = "oauth2accesstoken"  # who logs in with an access token in the place of a password
_ROLE = "roles/artifactregistry.reader"


def resources(layout: Layout) -> list[Resource]:
    """Describe the repository, and that nodes may pull from it."""
    repository = layout.resource(
        REPOSITORY,
        needs=apis.needs(layout),
        properties={"path": layout.repository_path, "immutable": True, "kms_key": layout.settings.kms_key},
    )
    binding = layout.resource(
        BINDING,
        identity.NODES,
        needs=(repository.key, layout.key(identity.ACCOUNT, identity.NODES)),
        properties={
            "holder": layout.repository_path,
            "member": f"serviceAccount:{layout.account(identity.NODES)}",
            "grants": ((_ROLE, ""),),
        },
    )
    return [repository, binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {REPOSITORY: RepositoryDriver(gcp), BINDING: RepositoryBindingDriver(gcp)}


def login(layout: Layout, gcp: Gcp) -> Registry:
    """Log in to Artifact Registry, for an hour; PreflightError where the cluster has no repository."""
    registry = gcp.client(_SERVICE)
    if gcp.get(registry.get_repository, name=layout.repository_path) is None:
        raise PreflightError(
            f"there is no {layout.repository_path}", remedy=f"cloudrec up gcp --cluster {layout.title}"
        )
    gcp.credentials.refresh(Request())
    address = f"{layout.region}-docker.pkg.dev"
    project = layout.project.replace(":", "/")  # of a domain's own: example.com:name
    return Registry(
        address=address,
        repository=f"{address}/{project}/{ids.name(layout.repository_path)}/{access.IMAGE}",
        username=_USERNAME,
        password=SecretStr(str(gcp.credentials.token)),
    )


class RepositoryDriver(GcpDriver):
    """Handles image repositories."""

    kind = REPOSITORY
    changeable = frozenset({"immutable"})

    @property
    def registry(self) -> Any:  # noqa: ANN401 - the SDK is seen as Any
        """Artifact Registry's client."""
        return self.gcp.client(_SERVICE)

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the region's, and keep those with our labels."""
        parent = f"projects/{self.gcp.project}/locations/{self.gcp.region}"
        rows = self.gcp.rows(self.registry.list_repositories, parent=parent)
        found = [self._observe(row) for row in rows]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by its path."""
        row = self.gcp.get(self.registry.get_repository, name=resource.properties["path"])
        return None if row is None else self._observe(row)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.gcp.read(self.registry.get_repository, name=identity)
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the repository; there is no token for it, but a second one of its name is refused."""
        del token, identities
        parent, _, name = str(resource.properties["path"]).partition("/repositories/")
        document = {
            "format_": "DOCKER",
            "description": "Images of cloudrec's trainer",
            "labels": labels.encode(resource.tags),
            "docker_config": {"immutable_tags": resource.properties["immutable"]},
            "kms_key_name": resource.properties["kms_key"] or "",
        }

        def once() -> str:
            begun = self.gcp.call(
                self.registry.create_repository, parent=parent, repository_id=name, repository=document
            )
            return operations.of_service(_SERVICE, begun.operation.name)

        return self.begin(f"{parent}/repositories/{name}", once)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Let no tag be moved to another image."""
        del identities
        self.gcp.call(
            self.registry.update_repository,
            repository={
                "name": observed.identity,
                "docker_config": {"immutable_tags": resource.properties["immutable"]},
            },
            update_mask={"paths": ["docker_config.immutable_tags"]},
        )

    def remove(self, observed: Observed) -> None:
        """Delete the repository with all images in it."""

        def once() -> str:
            begun = self.gcp.call(self.registry.delete_repository, name=observed.identity)
            return operations.of_service(_SERVICE, begun.operation.name)

        self.begin(observed.identity, once, is_removal=True)

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's message
        tags = labels.decode(dict(row.labels))
        return Observed(
            kind=REPOSITORY,
            name=name_of(tags, ids.name(row.name)),
            identity=row.name,
            condition=Condition.READY,
            properties={
                "immutable": row.docker_config.immutable_tags,
                "kms_key": row.kms_key_name or None,
            },
            tags=tags,
            location=self.gcp.region,
            created=row.create_time.timestamp() if row.create_time else None,
        )


class RepositoryBindingDriver(policies.BindingDriver):
    """Handles which accounts may pull from a repository."""

    kind = BINDING

    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Look in the clusters' repositories for accounts of ours."""
        there = identity.members(self.gcp, cluster)
        ours = {who: policies.inherited(tags, BINDING, identity.NODES) for who, tags in there.items()}
        for seen in RepositoryDriver(self.gcp).search(cluster):
            yield (
                seen.identity,
                {who: tags for who, tags in ours.items() if tags[TAG_CLUSTER] == seen.cluster},
            )
