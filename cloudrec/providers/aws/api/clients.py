"""The clients of AWS's services, each created at its first use. boto3's own retries are off."""

from __future__ import annotations

import re
import threading
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypedDict, TypeVar

import boto3
from botocore.config import Config
from botocore.loaders import Loader, create_loader
from botocore.session import Session as BotocoreSession
from botocore.utils import parse_timestamp

from cloudrec.errors import PreflightError, SpecError, UnreadableAnswerError
from cloudrec.spec.suggest import did_you_mean
from cloudrec.version import __version__
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from botocore.client import BaseClient
    from botocore.model import OperationModel, StructureShape
    from types_boto3_autoscaling import AutoScalingClient
    from types_boto3_ec2 import EC2Client
    from types_boto3_ecr import ECRClient
    from types_boto3_eks import EKSClient
    from types_boto3_elb import ElasticLoadBalancingClient
    from types_boto3_elbv2 import ElasticLoadBalancingv2Client
    from types_boto3_fsx import FSxClient
    from types_boto3_iam import IAMClient
    from types_boto3_kms import KMSClient
    from types_boto3_logs import CloudWatchLogsClient
    from types_boto3_pricing import PricingClient
    from types_boto3_resourcegroupstaggingapi import ResourceGroupsTaggingAPIClient
    from types_boto3_s3 import S3Client
    from types_boto3_scheduler import EventBridgeSchedulerClient
    from types_boto3_service_quotas import ServiceQuotasClient
    from types_boto3_sts import STSClient

_CONNECT_TIMEOUT_S, _READ_TIMEOUT_S = 10, 60
_POOL = 64  # connections: one for each of the engine's threads
_MAKING = threading.Lock()  # boto3 creates clients in one thread only; using a client is thread-safe
_REDIRECT = 300  # HTTP's first status that is no success
_ROOT = re.compile(rb"<([A-Za-z_][\w.-]*)")
_HEAD = 2000  # bytes of an answer in which its first element begins
_SHOWN = 80  # bytes of a foreign answer in a message
_COLLECTIONS = {"structure", "list", "map"}
C = TypeVar("C", bound="BaseClient")


class _Options(TypedDict):
    """Keyword arguments of `Session.client`."""

    region_name: str
    endpoint_url: str | None
    config: Config


class _Answer(TypedDict):
    """What botocore's parsers get of an answer."""

    status_code: int
    body: bytes


def answered_time(value: str) -> datetime:
    """Return the time in an answer; ValueError for one that cannot be, where botocore raises RuntimeError."""
    try:
        return parse_timestamp(value)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


@cache
def models(data_path: str | None) -> Loader:
    """Return the loader of the services' models; one for all sessions, since parsing the models is slow."""
    return create_loader(data_path)


class AwsClients:
    """The client of each service in one region, with the environment's credentials.

    Args:
        environment: see `client.Aws`.
        region: the region; None means the region that the environment names.
    """

    def __init__(self, environment: Mapping[str, str], region: str | None = None) -> None:
        self._environment = environment
        self._region = region

    @cached_property
    def session(self) -> boto3.Session:
        """The boto3 session; boto3's ProfileNotFound if AWS_PROFILE does not exist."""
        given = self._environment.get
        core = BotocoreSession(profile=given("AWS_PROFILE") or given("AWS_DEFAULT_PROFILE") or None)
        core.user_agent_name, core.user_agent_version = "cloudrec", __version__
        core.register_component("data_loader", models(core.get_config_variable("data_path")))
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=answered_time)
        return boto3.Session(
            botocore_session=core,
            aws_access_key_id=given("AWS_ACCESS_KEY_ID") or None,
            aws_secret_access_key=given("AWS_SECRET_ACCESS_KEY") or None,
            aws_session_token=given("AWS_SESSION_TOKEN") or None,
            region_name=self._region or given("AWS_REGION") or given("AWS_DEFAULT_REGION") or None,
        )

    @property
    def given_region(self) -> str:
        """The region as configured, not validated; empty if none is configured."""
        return str(self.session.region_name or "")

    @cached_property
    def region(self) -> str:
        """The region; PreflightError if none is configured, SpecError if AWS has no EKS in it."""
        region = self.given_region
        if not region:
            raise PreflightError(
                "no AWS region is named", remedy="pass --region us-east-1, or set AWS_REGION"
            )
        partitions = self.session.get_available_partitions()
        known = {name for part in partitions for name in self.session.get_available_regions("eks", part)}
        if region not in known:
            raise SpecError(f"AWS has no region {region!r} with EKS", remedy=did_you_mean(region, known))
        return region

    @property
    def endpoint(self) -> str:
        """The URL that replaces EKS's own endpoint; empty if none does."""
        return self._endpoint("eks") or ""

    @cached_property
    def autoscaling(self) -> AutoScalingClient:
        """EC2 Auto Scaling, which launches the nodes of node groups."""
        return _made(lambda: self.session.client("autoscaling", **self._options("autoscaling")))

    @cached_property
    def ec2(self) -> EC2Client:
        """Networks, machines and disks."""
        return _made(lambda: self.session.client("ec2", **self._options("ec2")))

    @cached_property
    def ecr(self) -> ECRClient:
        """Image repositories."""
        return _made(lambda: self.session.client("ecr", **self._options("ecr")))

    @cached_property
    def eks(self) -> EKSClient:
        """EKS clusters, node groups and add-ons."""
        return _made(lambda: self.session.client("eks", **self._options("eks")))

    @cached_property
    def elb(self) -> ElasticLoadBalancingClient:
        """Classic load balancers."""
        return _made(lambda: self.session.client("elb", **self._options("elb")))

    @cached_property
    def elbv2(self) -> ElasticLoadBalancingv2Client:
        """Application and network load balancers, and target groups."""
        return _made(lambda: self.session.client("elbv2", **self._options("elbv2")))

    @cached_property
    def fsx(self) -> FSxClient:
        """Lustre file systems."""
        return _made(lambda: self.session.client("fsx", **self._options("fsx")))

    @cached_property
    def iam(self) -> IAMClient:
        """Roles and policies."""
        return _made(lambda: self.session.client("iam", **self._options("iam")))

    @cached_property
    def kms(self) -> KMSClient:
        """KMS keys."""
        return _made(lambda: self.session.client("kms", **self._options("kms")))

    @cached_property
    def logs(self) -> CloudWatchLogsClient:
        """Log groups."""
        return _made(lambda: self.session.client("logs", **self._options("logs")))

    @cached_property
    def pricing(self) -> PricingClient:
        """AWS's price list."""
        return _made(lambda: self.session.client("pricing", **self._options("pricing")))

    @cached_property
    def s3(self) -> S3Client:
        """Buckets and objects."""
        return _made(lambda: self.session.client("s3", **self._options("s3")))

    @cached_property
    def scheduler(self) -> EventBridgeSchedulerClient:
        """EventBridge Scheduler, which ends clusters."""
        return _made(lambda: self.session.client("scheduler", **self._options("scheduler")))

    @cached_property
    def service_quotas(self) -> ServiceQuotasClient:
        """The account's quotas."""
        return _made(lambda: self.session.client("service-quotas", **self._options("service-quotas")))

    @cached_property
    def sts(self) -> STSClient:
        """The caller's identity, and tokens."""
        return _made(lambda: self.session.client("sts", **self._options("sts")))

    @cached_property
    def tagging(self) -> ResourceGroupsTaggingAPIClient:
        """Resources of any service, by their tags."""
        return _made(
            lambda: self.session.client(
                "resourcegroupstaggingapi", **self._options("resourcegroupstaggingapi")
            )
        )

    def _options(self, service: str) -> _Options:
        return {
            "region_name": self.region,
            "endpoint_url": self._endpoint(service),
            "config": Config(
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=_READ_TIMEOUT_S,
                max_pool_connections=_POOL,
                # The engine retries: it checks first whether a lost response had its effect.
                retries={"total_max_attempts": 1},
            ),
        }

    def _endpoint(self, service: str) -> str | None:
        """Return the URL that replaces a service's own endpoint, by boto3's variables; None if none does."""
        own = service.replace("-", "_").upper()
        return self._environment.get(f"AWS_ENDPOINT_URL_{own}") or self._environment.get("AWS_ENDPOINT_URL")


def _made(make: Callable[[], C]) -> C:
    """Create a client whose errors contain the name of their service."""
    with _MAKING:
        client = make()
    client.meta.events.register("after-call.*.*", _name_the_service)
    client.meta.events.register_first("before-parse.*.*", _refuse_foreign)
    return client


def _refuse_foreign(operation_model: OperationModel, response_dict: _Answer, **_: object) -> None:
    """Raise UnreadableAnswerError if a successful answer is not one of the operation.

    botocore turns a page of a proxy, or an empty answer, into a result without members. By AWS's protocols
    (Smithy: awsQuery, ec2Query, awsJson, restJson1, restXml), answers of the first two have the operation's
    name in their first element, and those of the others are JSON objects or XML.
    """
    model, shape = operation_model, operation_model.output_shape
    if response_dict["status_code"] >= _REDIRECT or model.has_streaming_output:
        return
    payload = shape.serialization.get("payload") if shape is not None else None
    if shape is not None and payload and shape.members[payload].type_name not in _COLLECTIONS:
        return  # the body is one value, such as a bucket's policy
    body, protocol = response_dict["body"], str(model.service_model.protocol)
    if protocol in {"query", "ec2"}:
        is_own = _root_of(body) == f"{model.name}Response"
    elif not body:
        is_own = shape is None or not _in_body(shape)
    elif protocol == "rest-xml":
        is_own = _root_of(body).lower() not in {"", "html"}
    else:
        is_own = _is_json(body, is_object=shape is not None and bool(shape.members))
    if not is_own:
        shown = body[:_SHOWN].decode("utf-8", errors="replace")
        raise UnreadableAnswerError(f"{model.name} is answered with {shown!r}")


def _root_of(body: bytes) -> str:
    """Return the name of an XML document's first element; empty if it has none."""
    found = _ROOT.search(body[:_HEAD])
    return found[1].decode("ascii") if found else ""


def _is_json(body: bytes, *, is_object: bool) -> bool:
    """Return whether a body is JSON. By awsJson, clients ignore the body of an operation without output."""
    try:
        found = safe_json(body, numbers="any")
    except ValueError:
        return False
    return isinstance(found, dict) or not is_object


def _in_body(shape: StructureShape) -> bool:
    """Return whether an operation's answer has values in its body, rather than in its headers alone."""
    return any("location" not in member.serialization for member in shape.members.values())


def _name_the_service(parsed: object, model: OperationModel, **_: object) -> None:
    """Add the service's name to an error response: a ClientError has only the operation's name."""
    if isinstance(parsed, dict) and isinstance(parsed.get("Error"), dict):
        parsed["Error"]["Service"] = model.service_model.signing_name
