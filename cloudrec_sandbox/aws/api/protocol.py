"""AWS's wire protocols by botocore's service models: operation, parameters, reply."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from botocore import parsers
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.exceptions import NotFound

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.wsgi import environ
from cloudrec_sandbox.core.http import HttpRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
# Signing names that differ from botocore's names of the services.
_SERVICES = {
    "elasticloadbalancing": "elbv2",
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
    "tagging": "resourcegroupstaggingapi",
}
_SIGNERS = {service: name for name, service in _SERVICES.items()}
_CLASSIC = "2012-06-01"  # the API version of classic load balancers; both kinds sign as elasticloadbalancing
_IAM_PREFIXES = {
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
    "service-quotas": "servicequotas",
}
# S3's permissions are named after the action, not after the operation.
_S3_ACTIONS = {
    "AbortMultipartUpload": "AbortMultipartUpload",
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteObjects": "DeleteObject",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListBuckets": "ListAllMyBuckets",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListParts": "ListMultipartUploadParts",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
}
_QUERY_OVERHEAD = {"Action", "Version"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a request is for. `service` is botocore's name; `action` is empty if no operation was found."""

    service: str
    action: str
    region: str
    access_key: str
    uri_params: Mapping[str, Any]

    @property
    def iam_action(self) -> str:
        """Return the permission that the caller needs."""
        if self.service == "s3":
            return f"s3:{_S3_ACTIONS.get(self.action, self.action)}"
        return f"{_IAM_PREFIXES.get(self.service, self.service)}:{self.action}"


def identify(request: HttpRequest) -> Target:
    """Return the operation that `request` is for; S3 if it is not signed."""
    match = _CREDENTIAL.search(request.lower.get("authorization", "") or request.target.replace("%2F", "/"))
    access_key, region, name = match.groups() if match else ("", "us-east-1", "s3")
    service = _SERVICES.get(name, name)
    target = request.lower.get("x-amz-target", "")
    form = request.lower.get("content-type", "").startswith("application/x-www-form-urlencoded")
    uri_params: dict[str, Any] = {}
    if target:
        action = target.rpartition(".")[2]
    elif form and service != "s3":
        fields = dict(parse_qsl(request.body.decode()))
        action = fields.get("Action", "")
        if service == "elbv2" and fields.get("Version") == _CLASSIC:
            service = "elb"
    else:
        action, uri_params = _route(service, request)
    return Target(service=service, action=action, region=region, access_key=access_key, uri_params=uri_params)


def _route(service: str, request: HttpRequest) -> tuple[str, dict[str, Any]]:
    try:
        operation, uri_params = get_service_router(service).match(Request(environ(request)))
    except (NotFound, NotImplementedError):
        return "", {}
    return str(operation.name), uri_params


def is_known(target: Target) -> bool:
    """Return whether botocore's model has the operation."""
    return target.action in get_service_model(target.service).operation_names


def parameters(target: Target, request: HttpRequest) -> dict[str, Any]:
    """Return the request's parameters, named as in boto3."""
    model = get_service_model(target.service)
    operation = model.operation_model(target.action)
    protocol = determine_request_protocol(model, request.lower.get("content-type"))
    http = Request(environ(request))
    parsed = PROTOCOL_PARSERS[protocol](operation).parse(
        {
            "method": http.method,
            "values": http.values,
            "headers": http.headers,
            "body": request.body,
            "url_path": http.path,
            "url_params": dict(target.uri_params),
        }
    )
    return dict(parsed)


def refuse_unknown(target: Target, request: HttpRequest) -> None:
    """Raise AwsError for a parameter that the operation does not have: a misspelt one must not be ignored."""
    protocol = str(get_service_model(target.service).protocol)
    if protocol in ("ec2", "query"):
        names = {key.partition(".")[0] for key, _ in parse_qsl(request.body.decode())} - _QUERY_OVERHEAD
        known = _wire_names(target.service, target.action)
    elif protocol in ("json", "rest-json") and request.body:
        names, known = set(json.loads(request.body)), _members(target.service, target.action)
    else:
        return
    if unknown := sorted(names - known):
        raise AwsError("UnknownParameter", f"{target.action} has no parameter {', '.join(unknown)}")


@lru_cache(maxsize=1024)
def _members(service: str, action: str) -> set[str]:
    """Return the names that a JSON body may use for the operation's parameters."""
    shape = get_service_model(service).operation_model(action).input_shape
    members = shape.members if shape else {}
    return set(members) | {str(member.serialization.get("name", name)) for name, member in members.items()}


@lru_cache(maxsize=1024)
def _wire_names(service: str, action: str) -> set[str]:
    """Return the names that a query may use for the operation's parameters."""
    shape = get_service_model(service).operation_model(action).input_shape
    names: set[str] = set()
    for name, member in shape.members.items() if shape else ():
        wire = str(member.serialization.get("queryName") or member.serialization.get("name") or name)
        names |= {name, wire, wire[:1].upper() + wire[1:]}
        if member.type_name == "list":
            item = member.member.serialization.get("name")
            names |= {item} if item else set()
    return names


def serialise(target: Target, result: Mapping[str, Any], request: HttpRequest) -> Reply:
    """Return the reply that carries `result`, which has boto3's shape for the operation."""
    model = get_service_model(target.service)
    protocol = determine_request_protocol(model, request.lower.get("content-type"))
    serializer = get_serializer_class(target.service, protocol)(
        operation_model=model.operation_model(target.action)
    )
    done = serializer.serialize(dict(result))
    body = done["body"]
    data = body if isinstance(body, bytes) else body.encode()
    return Reply(status=int(done["status_code"]), headers=tuple(done["headers"].items()), body=data)


def parse(target: Target, reply: Reply, request: HttpRequest) -> dict[str, Any]:
    """Return `reply` as boto3 parses it, without ResponseMetadata."""
    model = get_service_model(target.service)
    protocol = determine_request_protocol(model, request.lower.get("content-type"))
    shape = model.operation_model(target.action).output_shape
    parsed: dict[str, Any] = _parser(protocol).parse(
        {"status_code": reply.status, "headers": dict(reply.headers), "body": reply.body}, shape
    )
    parsed.pop("ResponseMetadata", None)
    return parsed


@lru_cache
def _parser(protocol: str) -> Any:  # noqa: ANN401 - botocore is untyped
    return parsers.create_parser(protocol)


def refuse(target: Target, error: AwsError, request_id: str) -> Reply:
    """Return the reply that carries `error`, in the service's protocol."""
    protocol = str(get_service_model(target.service).protocol)
    code, message = escape(error.code), escape(error.message)
    if protocol in ("json", "rest-json"):
        body = json.dumps({"__type": error.code, "message": error.message, **error.fields}, default=str)
        headers = (("Content-Type", "application/json"), ("x-amzn-ErrorType", error.code))
        return Reply(status=error.status, headers=headers, body=body.encode())
    if protocol == "ec2":
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
            f"<RequestID>{request_id}</RequestID></Response>"
        )
    elif protocol == "query":
        fault = "Receiver" if error.status >= 500 else "Sender"  # noqa: PLR2004 - HTTP's own classes
        text = (
            f"<ErrorResponse><Error><Type>{fault}</Type><Code>{code}</Code><Message>{message}</Message></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
    else:
        text = (
            f"<Error><Code>{code}</Code><Message>{message}</Message>"
            f"<RequestId>{request_id}</RequestId></Error>"
        )
    head = (("Content-Type", "text/xml"), ("x-amz-request-id", request_id))
    return Reply(status=error.status, headers=head, body=f'<?xml version="1.0"?>{text}'.encode())


def framed(origin: HttpRequest, target: Target, body: bytes) -> HttpRequest:
    """Return a request for an operation of the query and JSON protocols, from the sender of `origin`."""
    model = get_service_model(target.service)
    signer = _SIGNERS.get(target.service, target.service)
    scope = f"{target.access_key}/20260101/{target.region}/{signer}/aws4_request"
    headers = {
        "Host": origin.lower.get("host", ""),
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    if str(model.protocol) == "json":
        headers["Content-Type"] = f"application/x-amz-json-{model.metadata['jsonVersion']}"
        headers["X-Amz-Target"] = f"{model.metadata['targetPrefix']}.{target.action}"
    return HttpRequest(method="POST", target="/", headers=headers, body=body)
