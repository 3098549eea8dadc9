"""AWS's errors: whether the engine may repeat the call, and what a person reads about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UnreadableAnswerError
from cloudrec.providers.base.driver import UnfinishedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_UNREADABLE = (ResponseParserError, UnreadableAnswerError)

# The exceptions that a driver of this provider may raise.
REFUSALS = (boto.ClientError, boto.BotoCoreError, *_UNREADABLE)

_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
_NETWORK = (boto.HTTPClientError, boto.ConnectionError)  # timeouts, broken connections, unknown hosts

_THROTTLES = re.compile(
    r"Throttl|RequestLimitExceeded|TooManyRequests|EC2Throttled|SlowDown|RequestThrottled"
)
# Transient failures of the service: it is not known whether the call had its effect.
_LOST = frozenset(
    {"InternalError", "InternalFailure", "InternalServerError", "ServerException", "ServiceUnavailable"}
    | {"ServiceUnavailableException", "Unavailable", "InternalServerException", "RequestTimeout"}
    | {"RequestTimeoutException", "ServerInternal", "PriorRequestNotComplete"}
)
# A resource of this name exists: a call whose response was lost created it, and lists did not show it yet.
_EXISTS = frozenset(
    {"EntityAlreadyExists", "InvalidGroup.Duplicate", "RepositoryAlreadyExistsException"}
    | {"ResourceAlreadyExistsException", "InvalidLaunchTemplateName.AlreadyExistsException"}
    | {"InvalidPlacementGroup.Duplicate", "RouteAlreadyExists"}
)
_ABSENT = re.compile(
    r"NotFound(Exception)?$|^NoSuch(Bucket|Entity|Key|Upload)$|\.Unknown$|^404$|^NoSuchEntityException$"
)
# EC2 and IAM are eventually consistent: a resource that exists is not found for some seconds.
_NOT_YET = re.compile(
    r"^Invalid\w*\.NotFound$|^NatGatewayNotFound$|^NoSuchEntity(Exception)?$|^NoSuchBucket$"
)
# AWS still works on the resource, or another resource still uses it.
_IN_USE = frozenset(
    {"DependencyViolation", "DeleteConflict", "InvalidIPAddress.InUse", "InvalidPlacementGroup.InUse"}
    | {"InvalidNetworkInterface.InUse", "ResourceInUse", "ResourceInUseException", "OperationAborted"}
    | {"OperationAbortedException", "ConcurrentModification", "ConcurrentModificationException"}
    | {"IncorrectState", "BucketNotEmpty", "OperationInProgress", "ConflictException"}
)
# A role, profile, rule or service-linked role that is seconds old is refused like an invalid one. Only the
# words of the message distinguish the two.
_FRESH_CODES = frozenset(
    {
        "InvalidParameterException",
        "InvalidParameterValue",
        "InvalidNetworkSettings",
        "InvalidRequestException",
    }
    | {"MalformedPolicyDocument", "MalformedPolicyDocumentException", "ValidationException"}
)
_FRESH_WORDS = re.compile(
    r"(role|profile|principal|policy).*(does not exist|not assumable|(cannot|could not) be assumed)"
    r"|(role|profile|principal|policy).*can(not|'t) be found"
    r"|trusted entity|policy must include|Error in role params|invalid principal|Invalid IAM Instance Profile"
    r"|role you provide must allow AWS EventBridge Scheduler to assume"
    r"|do not permit Lustre|being created|not in ACTIVE",
    re.IGNORECASE | re.DOTALL,
)
_CAPACITY = frozenset(
    {"InsufficientInstanceCapacity", "UnfulfillableCapacity", "ReservationCapacityExceeded"}
    | {"InsufficientHostCapacity", "InsufficientReservedInstanceCapacity", "InsufficientCapacity"}
    | {"SpotMaxPriceTooLow", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"}
    | {"InsufficientFreeAddressesInSubnet", "InsufficientFreeAddresses", "AsgInstanceLaunchFailures"}
    | {"InsufficientCapacityOnOutpost", "CapacityNotAvailable"}
)
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
    | {"AuthFailure", "SignatureDoesNotMatch", "InvalidAccessKeyId", "TokenRefreshRequired", "RequestExpired"}
    | {"InvalidSignatureException", "IncompleteSignature", "MissingAuthenticationToken"}
)
_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "Client.UnauthorizedOperation"}
    | {"UnauthorizedException", "NotAuthorized", "403", "AllAccessDisabled"}
)
# How AWS says that the caller's own policies lack the permission, and not that another account or a policy
# of the resource denies it ("Troubleshoot access denied error messages" in IAM's user guide).
_UNPERMITTED = re.compile(r"no (identity-based policy|permissions boundary|session policy) allows")
_QUOTA = re.compile(r"LimitExceeded(Exception|Fault)?$|QuotaExceeded|^TooManyBuckets$|LimitExceeded\b")
_WRONG = re.compile(
    r"^Invalid|^Malformed|^Validation|^BadRequest|^Missing|^Unsupported|InvalidConfiguration$"
)

# Operations whose IAM action has another name than the operation.
_ACTIONS: Mapping[str, str] = {
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:DeleteObjects": "s3:DeleteObject and s3:DeleteObjectVersion",
    "s3:HeadObject": "s3:GetObject",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock",
    "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
    "s3:GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "tagging:GetResources": "tag:GetResources",
}


# Codes of AWS -> error, text and remedy; the first entry that matches is used.
_REFUSALS: Sequence[tuple[Callable[[str], object], type[CloudrecError], str, str]] = (
    (
        _CREDENTIALS.__contains__,
        PreflightError,
        "AWS does not accept the credentials",
        "log in again (`aws sso login`, or new keys); check the clock, and that the region is enabled",
    ),
    (
        "OptInRequired".__eq__,
        PreflightError,
        "the account has not enabled the service or the region",
        "enable the service or the region for the account",
    ),
    (
        _CAPACITY.__contains__,
        CloudrecError,
        "AWS has no capacity, or the account's quota is used up",
        "allow other instance types or zones, or request a higher quota (Service Quotas)",
    ),
    (
        _QUOTA.search,
        PreflightError,
        "a quota of the account is used up",
        "remove unused resources (`cloudrec leaks aws`), or request an increase in Service Quotas",
    ),
    (
        lambda error_code: _WRONG.search(error_code) and not _ABSENT.search(error_code),
        SpecError,
        "AWS refuses the request's parameters",
        "change the setting that the message names",
    ),
)
# Errors of boto3 itself, before AWS has answered -> error, text and remedy.
_LOCAL: Sequence[tuple[tuple[type[Exception], ...], type[CloudrecError], str, str]] = (
    (
        (boto.NoCredentialsError, boto.PartialCredentialsError),
        PreflightError,
        "there are no AWS credentials",
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or `aws sso login`",
    ),
    (
        (boto.ProfileNotFound,),
        PreflightError,
        "AWS_PROFILE cannot be used",
        "use a profile that ~/.aws/config has",
    ),
    (
        (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError),
        PreflightError,
        "the AWS credentials cannot be read",
        "log in again (`aws sso login`)",
    ),
    ((boto.NoRegionError,), PreflightError, "no AWS region is named", "set cluster.region, or AWS_REGION"),
    (
        _NETWORK,
        PreflightError,
        "AWS cannot be reached",
        "check the network, the proxy, the region's name and AWS_ENDPOINT_URL",
    ),
    (
        _UNREADABLE,
        PreflightError,
        "what answers is not AWS",
        "check the network, the proxy and AWS_ENDPOINT_URL; the same command again continues",
    ),
    (
        (boto.ParamValidationError,),
        SpecError,
        "boto3 refuses the request's parameters",
        "change the setting that the message names",
    ),
)


def code(error: Exception) -> str:
    """Return AWS's error code; for an error that is not AWS's, the name of its class."""
    if isinstance(error, UnfinishedError):
        return code(error.cause)
    if isinstance(error, boto.ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def message(error: Exception) -> str:
    """Return the message of the error, without boto3's text around it."""
    if isinstance(error, boto.ClientError):
        return str(error.response.get("Error", {}).get("Message") or error)
    return str(error)


def is_absent(error: Exception) -> bool:
    """Return whether the error means that the resource does not exist."""
    return isinstance(error, boto.ClientError) and _ABSENT.search(code(error)) is not None


def is_denied(error: Exception) -> bool:
    """Return whether the error means that the caller lacks a permission."""
    return isinstance(error, boto.ClientError) and code(error) in _DENIED


def is_unpermitted(error: Exception) -> bool:
    """Return whether the caller's own policies, and not those of the resource, lack the permission."""
    return is_denied(error) and _UNPERMITTED.search(message(error)) is not None


def is_in_use(error: Exception) -> bool:
    """Return whether AWS still works on the resource, or another resource still uses it."""
    return isinstance(error, boto.ClientError) and code(error) in _IN_USE


def is_transient(error: Exception) -> bool:
    """Return whether a read can be repeated: the network, the rate limit or the service failed."""
    return _is_throttle(error) or _is_lost(error)


def verdict(error: Exception) -> ErrorVerdict:
    """Return whether the engine may repeat the call that raised this error."""
    if isinstance(error, UnfinishedError):
        return error.verdict(verdict)
    if _is_throttle(error):
        return ErrorVerdict.RETRY
    if _is_lost(error):
        return ErrorVerdict.LOST
    return _verdict_on_refusal(error) if isinstance(error, boto.ClientError) else ErrorVerdict.FATAL


def _verdict_on_refusal(error: boto.ClientError) -> ErrorVerdict:
    error_code = code(error)
    if error_code in _CAPACITY:
        return ErrorVerdict.UNAVAILABLE
    if error_code in _EXISTS:
        return ErrorVerdict.LOST
    is_fresh = error_code in _FRESH_CODES and _FRESH_WORDS.search(message(error)) is not None
    if error_code in _IN_USE or is_fresh or _NOT_YET.search(error_code):
        return ErrorVerdict.RETRY
    return ErrorVerdict.FATAL


def explain(error: Exception) -> CloudrecError:
    """Return the error as a CloudrecError, with a remedy and the exit code; a CloudrecError as it is."""
    if isinstance(error, CloudrecError):
        return error
    if isinstance(error, UnfinishedError):
        return explain(error.cause)
    if isinstance(error, boto.ClientError):
        return _explain_refusal(error)
    return _explain_local(error)


def _explain_refusal(error: boto.ClientError) -> CloudrecError:
    error_code, words = code(error), message(error)
    if error_code in _DENIED:
        return PreflightError(
            f"the credentials may not do {action_of(error)}: {words}",
            remedy="have an administrator allow it; infra/aws/README.md lists the policies that cloudrec "
            "needs and the permissions boundary that they require",
        )
    for is_meant, kind, text, remedy in _REFUSALS:
        if is_meant(error_code):
            return kind(f"{text} ({error.operation_name}, {error_code}): {words}", remedy=remedy)
    return CloudrecError(f"AWS refuses {error.operation_name} ({error_code}): {words}")


def _explain_local(error: Exception) -> CloudrecError:
    for classes, kind, text, remedy in _LOCAL:
        if isinstance(error, classes):
            return kind(f"{text}: {error}", remedy=remedy)
    return CloudrecError(f"{type(error).__name__}: {error}")


def action_of(error: boto.ClientError) -> str:
    """Return the IAM action that a denied call needs, such as `ec2:CreateVpc`."""
    # `clients._name_the_service` adds the service; the SDK's types do not have the key.
    details: Mapping[str, object] = error.response.get("Error", {})
    service = details.get("Service", "")
    action = f"{service}:{error.operation_name}" if service else str(error.operation_name)
    return _ACTIONS.get(action, action)


def _is_throttle(error: Exception) -> bool:
    return isinstance(error, boto.ClientError) and _THROTTLES.search(code(error)) is not None


def _is_lost(error: Exception) -> bool:
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        # EC2 reports a lack of capacity with status 500, which otherwise means a failure of EC2.
        failed = status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED and code(error) not in _CAPACITY
        return failed or code(error) in _LOST
    # A response that is cut short, or is not from AWS, does not show whether the call had its effect.
    return isinstance(error, (*_NETWORK, *_UNREADABLE))
