"""The account in one region: clients of AWS's services, and reads that are repeated on transient errors.

Calls that change something are made once. The engine decides whether to repeat them, after it has checked
whether they had their effect (see `Driver`).
"""

from __future__ import annotations

import re
from functools import cached_property, partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from cloudrec.engine.clock import Clock
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import UnreadableAnswerError
from cloudrec.providers.aws.api.clients import AwsClients
from cloudrec.providers.aws.errors import is_transient
from cloudrec.providers.aws.prices import shipped
from cloudrec.providers.base import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from types_boto3_resourcegroupstaggingapi.type_defs import TagFilterTypeDef
    from types_boto3_sts.type_defs import GetCallerIdentityResponseTypeDef

P = ParamSpec("P")
T = TypeVar("T")
Page = TypeVar("Page")
_ACCOUNT = re.compile(r"\d{12}")


class Aws(AwsClients):
    """One AWS account in one region, with the environment's credentials.

    Args:
        environment: boto3's variables (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL...); what
            they do not set, boto3 reads from its other sources.
        region: the region; None means the region that the environment names.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        super().__init__(environment, region)
        self._speed = Clock.of(environment).speed
        self.prices = shipped().within(self.given_region)

    @cached_property
    def partition(self) -> str:
        """The second field of this region's ARNs: aws, aws-cn or aws-us-gov."""
        return self.session.get_partition_for_region(self.region)

    @cached_property
    def account(self) -> str:
        """The account's twelve digits."""
        return self.identity["Account"]

    @cached_property
    def identity(self) -> GetCallerIdentityResponseTypeDef:
        """The caller's Account, Arn and UserId, from sts get_caller_identity."""
        return self.read(self._identified)

    def _identified(self) -> GetCallerIdentityResponseTypeDef:
        """Return the caller. `up` journals the account, and `down` refuses another one: it must be right."""
        found = self.sts.get_caller_identity()
        if not _ACCOUNT.fullmatch(found["Account"]):
            raise UnreadableAnswerError(f"GetCallerIdentity is answered with account {found['Account']!r}")
        return found

    def read(self, operation: Callable[P, T], *arguments: P.args, **parameters: P.kwargs) -> T:
        """Make a call that changes nothing, and repeat it on transient errors.

        Raises:
            botocore.exceptions.ClientError: the service returns an error.
            botocore.exceptions.BotoCoreError: the service cannot be reached, or there are no credentials.
        """
        return reading.read(
            partial(operation, *arguments, **parameters), again=is_transient, speed=self._speed
        )

    def rows(
        self,
        pages: Callable[P, Iterable[Page]],
        of: Callable[[Page], Iterable[T] | None],
        *arguments: P.args,
        **parameters: P.kwargs,
    ) -> list[T]:
        """Return the rows of all pages of a list, read as by `read`.

        Args:
            pages: `paginate` of the operation's paginator.
            of: returns a page's rows; None if the service leaves out an empty list.
            arguments: the arguments of `pages`.
            parameters: the keyword arguments of `pages`.
        """
        # A paginator that has raised cannot continue: after an error the whole list is read again.
        return self.read(lambda: [row for page in pages(*arguments, **parameters) for row in of(page) or ()])

    def tagged(self, kind: str, cluster: str | None) -> list[str]:
        """Return the ARNs of resources with a cluster's tag in this region.

        The tagging API shows a change of tags only after minutes.

        Args:
            kind: the tagging API's resource type ("kms:key").
            cluster: the cluster's name; None for every cluster of cloudrec.
        """
        tag: TagFilterTypeDef = {"Key": TAG_CLUSTER}
        if cluster is not None:
            tag["Values"] = [cluster]
        rows = self.rows(
            self.tagging.get_paginator("get_resources").paginate,
            lambda page: page.get("ResourceTagMappingList"),
            TagFilters=[tag],
            ResourceTypeFilters=[kind],
        )
        return [row["ResourceARN"] for row in rows]
