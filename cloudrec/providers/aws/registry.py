"""The repository of the trainer's images."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from pydantic import SecretStr

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import Condition, Observed
from cloudrec.errors import PreflightError
from cloudrec.provider import Registry
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.driver import AwsDriver, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

REPOSITORY = "repository"
KINDS: Mapping[str, AbstractSet[str]] = {REPOSITORY: frozenset()}

_ROOT = "cloudrec/"  # what all clusters' repositories begin with


def resources(layout: Layout) -> list[Resource]:
    """Describe the repository."""
    properties = {"repository": layout.repository, "mutability": "IMMUTABLE"}
    return [layout.resource(REPOSITORY, properties=properties)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {REPOSITORY: RepositoryDriver(aws)}


def login(layout: Layout, aws: Aws) -> Registry:
    """Log in to ECR, for twelve hours; PreflightError where the cluster has no repository."""
    try:
        rows = aws.read("ecr", "describe_repositories", "repositories", repositoryNames=[layout.repository])
    except ClientError as error:
        if errors.is_absent(error):
            raise PreflightError(
                f"there is no repository {layout.repository} in {aws.region}",
                remedy=f"cloudrec up aws --cluster {layout.title}",
            ) from error
        raise
    given = aws.read("ecr", "get_authorization_token", "authorizationData")[0]["authorizationToken"]
    username, _, password = base64.b64decode(given).decode().partition(":")
    repository = str(rows[0]["repositoryUri"])
    return Registry(
        address=repository.partition("/")[0],
        repository=repository,
        username=username,
        password=SecretStr(password),
    )


class RepositoryDriver(AwsDriver):
    """Handles image repositories. A repository's identity is its name."""

    kind = REPOSITORY
    changeable = frozenset({"mutability"})
    poll_s = 1.0

    @property
    def ecr(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """ECR's client."""
        return self.aws.client("ecr")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List ours by name, and read the tags of each."""
        rows = self.aws.read("ecr", "describe_repositories", "repositories")
        found = [self._observe(row) for row in rows if row["repositoryName"].startswith(_ROOT)]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.aws.read("ecr", "describe_repositories", repositoryNames=[identity])
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the repository; ECR has no token for it, but refuses a second one of its name."""
        del token, identities
        name = str(resource.properties["repository"])
        self.ecr.create_repository(
            repositoryName=name,
            imageTagMutability=resource.properties["mutability"],
            imageScanningConfiguration={"scanOnPush": True},
            tags=as_list(resource.tags),
        )
        return name

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Let no tag be moved to another image."""
        del identities
        self.ecr.put_image_tag_mutability(
            repositoryName=observed.identity, imageTagMutability=resource.properties["mutability"]
        )

    def remove(self, observed: Observed) -> None:
        """Delete the repository with all images in it."""
        self.ecr.delete_repository(repositoryName=observed.identity, force=True)

    def _observe(self, row: Mapping[str, Any]) -> Observed:
        tags = as_map(
            self.aws.read("ecr", "list_tags_for_resource", "tags", resourceArn=row["repositoryArn"])
        )
        return Observed(
            kind=REPOSITORY,
            name=name_of(tags, row["repositoryName"]),
            identity=row["repositoryName"],
            condition=Condition.READY,
            properties={"repository": row["repositoryName"], "mutability": row.get("imageTagMutability")},
            tags=tags,
            location=self.aws.region,
            created=row["createdAt"].timestamp(),
        )
