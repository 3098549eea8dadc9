"""How AWS is reached: one session for an environment, clients made when first used, reads that try again.

A changing call is made once: whether it is made again, after a look whether it had its effect, is the
engine's decision (see `Driver`). Only reads are repeated here.
"""

from __future__ import annotations

import threading
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.session import Session as BotocoreSession

from cloudrec import __version__
from cloudrec.cloud.reading import read
from cloudrec.engine.clock import Clock
from cloudrec.engine.graph import TAG_CLUSTER
from cloudrec.errors import PreflightError, SpecError
from cloudrec.providers.aws.errors import is_transient
from cloudrec.providers.aws.prices import shipped
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 10, 60
_POOL = 64  # connections: as many as the engine has threads
_MAKING = threading.Lock()  # making a client is not thread-safe; using one is


@cache
def models(data_path: str | None) -> Loader:
    """Return what loads the services' models, once for all regions: each session would parse them anew."""
    return create_loader(data_path)


class Aws:
    """One account in one region, as the environment's credentials reach it.

    Args:
        environment: variables as boto3 knows them (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION,
            AWS_ENDPOINT_URL...); what they leave out, boto3 looks for in its usual places.
        region: the region; the environment's own when None.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        self._environment = environment
        self._region = region
        self._speed = Clock.of(environment).speed
        self.prices = shipped()
        self._clients: dict[str, Any] = {}

    @cached_property
    def session(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """The boto3 session; PreflightError names a profile that does not exist."""
        given = self._environment.get
        core = BotocoreSession(profile=given("AWS_PROFILE") or given("AWS_DEFAULT_PROFILE") or None)
        core.user_agent_name, core.user_agent_version = "cloudrec", __version__
        core.register_component("data_loader", models(core.get_config_variable("data_path")))
        return boto3.Session(
            botocore_session=core,
            aws_access_key_id=given("AWS_ACCESS_KEY_ID") or None,
            aws_secret_access_key=given("AWS_SECRET_ACCESS_KEY") or None,
            aws_session_token=given("AWS_SESSION_TOKEN") or None,
            region_name=self._region or given("AWS_REGION") or given("AWS_DEFAULT_REGION") or None,
        )

    @property
    def given_region(self) -> str:
        """The region as it is given, be it one or not; empty when it is not."""
        return str(self.session.region_name or "")

    @cached_property
    def region(self) -> str:
        """The region; PreflightError where nothing names one, SpecError where it is none."""
        region = self.given_region
        if not region:
            raise PreflightError(
                "no AWS region is named", remedy="give --region us-east-1, or set AWS_REGION"
            )
        partitions = self.session.get_available_partitions()
        known = {name for part in partitions for name in self.session.get_available_regions("eks", part)}
        if region not in known:
            raise SpecError(f"AWS has no region {region!r} with EKS", remedy=did_you_mean(region, known))
        return region

    @cached_property
    def partition(self) -> str:
        """What an ARN of this region begins with after `arn:`."""
        partition: str = self.session.get_partition_for_region(self.region)
        return partition

    @cached_property
    def account(self) -> str:
        """The account's twelve digits."""
        account: str = self.identity["Account"]
        return account

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Who calls, as sts get_caller_identity tells: Account, Arn, UserId."""
        identity: Mapping[str, str] = self.read("sts", "get_caller_identity")
        return identity

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 has no types
        """Return the client of a service, by boto3's name for it; it makes every call once."""
        with _MAKING:
            if service not in self._clients:
                self._clients[service] = self._make(service)
            return self._clients[service]

    def read(self, service: str, operation: str, key: str | None = None, **parameters: object) -> Any:  # noqa: ANN401 - whatever the service answers
        """Make a call that changes nothing, again where the network or the rate limit is in its way.

        Args:
            service: boto3's name of it ("ec2").
            operation: the client's method ("describe_vpcs").
            key: of the list in the answer; all of its pages are joined. None returns the answer itself.
            parameters: of the operation.

        Raises:
            botocore.exceptions.ClientError: the service refuses.
            botocore.exceptions.BotoCoreError: it cannot be reached, or there are no credentials.
        """
        client = self.client(service)

        def call() -> Any:  # noqa: ANN401 - whatever the service answers
            if key is None:
                return getattr(client, operation)(**parameters)
            if client.can_paginate(operation):
                pages = client.get_paginator(operation).paginate(**parameters)
                return [row for page in pages for row in page.get(key) or ()]
            return list(getattr(client, operation)(**parameters).get(key) or ())

        return read(call, again=is_transient, speed=self._speed)

    def tagged(self, kind: str, cluster: str | None) -> list[str]:
        """Return the ARNs of what bears a cluster's tag, or any cluster's, in this region, minutes late.

        Args:
            kind: the tagging API's word for it ("kms:key").
            cluster: its name; None for all of ours.
        """
        tag: dict[str, Any] = {"Key": TAG_CLUSTER}
        if cluster is not None:
            tag["Values"] = [cluster]
        rows = self.read(
            "resourcegroupstaggingapi",
            "get_resources",
            "ResourceTagMappingList",
            TagFilters=[tag],
            ResourceTypeFilters=[kind],
        )
        return [row["ResourceARN"] for row in rows]

    def _make(self, service: str) -> Any:  # noqa: ANN401 - boto3 has no types
        client = self.session.client(
            service,
            region_name=self.region,
            endpoint_url=self._endpoint(service),
            config=Config(
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=_READ_TIMEOUT_S,
                max_pool_connections=_POOL,
                retries={"total_max_attempts": 1},
            ),
        )
        client.meta.events.register("after-call.*.*", _name_the_service)
        return client

    def _endpoint(self, service: str) -> str | None:
        """Return what the given environment says in place of the service's own address, as boto3 would."""
        own = service.replace("-", "_").upper()
        return self._environment.get(f"AWS_ENDPOINT_URL_{own}") or self._environment.get("AWS_ENDPOINT_URL")


def _name_the_service(parsed: Any, model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's own
    """Write into a refusal which service it came from: a ClientError names only the operation."""
    if isinstance(parsed, dict) and isinstance(parsed.get("Error"), dict):
        parsed["Error"]["Service"] = model.service_model.signing_name
