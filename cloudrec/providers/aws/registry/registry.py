"""The repository of the trainer's images in ECR."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError
from pydantic import SecretStr

from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import Condition, Observed, Properties
from cloudrec.errors import PreflightError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import AwsDriver, as_list, as_map
from cloudrec.providers.base.driver import is_ours, name_of
from cloudrec.providers.base.protocol import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_ecr import ECRClient
    from types_boto3_ecr.literals import ImageTagMutabilityType
    from types_boto3_ecr.type_defs import DescribeRepositoriesRequestPaginateTypeDef, RepositoryTypeDef

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

REPOSITORY = "repository"
KINDS: Mapping[str, AbstractSet[str]] = {REPOSITORY: frozenset()}

_ROOT = "cloudrec/"  # prefix of the names of all clusters' repositories


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the repository."""
    properties = AwsRepositoryProperties(repository=layout.repository, mutability="IMMUTABLE")
    return [layout.resource(REPOSITORY, properties=properties, hourly_usd=BY_USE)]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {REPOSITORY: AwsRepositoryDriver(aws)}


def login(layout: AwsLayout, aws: Aws) -> Registry:
    """Return a login to ECR that is valid for 12 hours; PreflightError if the cluster has no repository."""
    try:
        rows = repositories(aws, {"repositoryNames": [layout.repository]})
    except ClientError as error:
        if errors.is_absent(error):
            raise PreflightError(
                f"there is no repository {layout.repository} in {aws.region}",
                remedy=f"cloudrec up aws --cluster {layout.title}",
            ) from error
        raise
    given = aws.read(aws.ecr.get_authorization_token)["authorizationData"][0]["authorizationToken"]
    # The token is the base64 of USER:PASSWORD.
    username, _, password = base64.b64decode(given).decode().partition(":")
    repository = rows[0]["repositoryUri"]
    return Registry(
        address=repository.partition("/")[0],
        repository=repository,
        username=username,
        password=SecretStr(password),
    )


def repositories(aws: Aws, asked: DescribeRepositoriesRequestPaginateTypeDef) -> list[RepositoryTypeDef]:
    """Return the image repositories of a request of describe_repositories."""
    pages = aws.ecr.get_paginator("describe_repositories").paginate
    return aws.rows(pages, lambda page: page.get("repositories"), **asked)


@dataclass(frozen=True, kw_only=True)
class AwsRepositoryProperties(Properties):
    """The requested properties of an image repository.

    Attributes:
        repository: its name.
        mutability: whether a tag can be moved to another image.
    """

    repository: str
    mutability: ImageTagMutabilityType


class AwsRepositoryDriver(AwsDriver[AwsRepositoryProperties]):
    """Handles image repositories. The identity is the repository's name."""

    kind = REPOSITORY
    changeable = frozenset({"mutability"})
    poll_s = 1.0

    @property
    def ecr(self) -> ECRClient:
        """ECR's client."""
        return self.aws.ecr

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the repositories by the prefix of their names, and keep those with the cluster's tag."""
        # ECR lists repositories without their tags: a call for each reads them.
        rows = repositories(self.aws, {})
        found = [self._observe(row) for row in rows if row["repositoryName"].startswith(_ROOT)]
        return [seen for seen in found if is_ours(seen.tags, cluster)]

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; ECR's error if the repository does not exist."""
        self.aws.read(self.ecr.describe_repositories, repositoryNames=[identity])
        return Condition.READY, ""

    def make(
        self, resource: Resource[AwsRepositoryProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the repository; ECR has no idempotency token, but refuses a second one of the name."""
        del token, identities
        name = resource.properties.repository
        self.ecr.create_repository(
            repositoryName=name,
            imageTagMutability=resource.properties.mutability,
            imageScanningConfiguration={"scanOnPush": True},
            tags=as_list(resource.tags),
        )
        return name

    def change(
        self,
        resource: Resource[AwsRepositoryProperties],
        observed: Observed,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Set whether tags can be moved to another image."""
        del identities
        self.ecr.put_image_tag_mutability(
            repositoryName=observed.identity, imageTagMutability=resource.properties.mutability
        )

    def remove(self, observed: Observed) -> None:
        """Delete the repository with all images in it."""
        self.ecr.delete_repository(repositoryName=observed.identity, force=True)

    def _observe(self, row: RepositoryTypeDef) -> Observed:
        answer = self.aws.read(self.ecr.list_tags_for_resource, resourceArn=row["repositoryArn"])
        tags = as_map(answer.get("tags"))
        return Observed(
            kind=REPOSITORY,
            name=name_of(tags, row["repositoryName"]),
            identity=row["repositoryName"],
            condition=Condition.READY,
            properties={"repository": row["repositoryName"], "mutability": row.get("imageTagMutability")},
            tags=tags,
            location=self.aws.region,
            created=row["createdAt"].timestamp(),
            hourly_usd=BY_USE,
        )
