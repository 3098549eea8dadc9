"""What AWS's errors mean: to the engine (may the call be made again?) and to a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from cloudrec.cloud.driver import UnfinishedError
from cloudrec.engine.graph import Verdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
_NETWORK = (boto.HTTPClientError, boto.ConnectionError)  # timeouts, cut connections, no route, no such host

_THROTTLES = re.compile(
    r"Throttl|RequestLimitExceeded|TooManyRequests|EC2Throttled|SlowDown|RequestThrottled"
)
# Transient failures of the service itself: whether the call had its effect is not known.
_LOST = frozenset(
    {"InternalError", "InternalFailure", "InternalServerError", "ServerException", "ServiceUnavailable"}
    | {"ServiceUnavailableException", "Unavailable", "InternalServerException", "RequestTimeout"}
    | {"RequestTimeoutException", "ServerInternal", "PriorRequestNotComplete"}
)
# One of that name is there: made by a call whose answer was lost, and not listed when it was looked for.
_EXISTS = frozenset(
    {"EntityAlreadyExists", "InvalidGroup.Duplicate", "RepositoryAlreadyExistsException"}
    | {"ResourceAlreadyExistsException", "InvalidLaunchTemplateName.AlreadyExistsException"}
    | {"InvalidPlacementGroup.Duplicate", "RouteAlreadyExists"}
)
_ABSENT = re.compile(
    r"NotFound(Exception)?$|^NoSuch(Bucket|Entity|Key|Upload)$|\.Unknown$|^404$|^NoSuchEntityException$"
)
# What is there but not yet seen everywhere, or still in somebody's use: a little later it is not.
_NOT_YET = re.compile(
    r"^Invalid\w*\.NotFound$|^NatGatewayNotFound$|^NoSuchEntity(Exception)?$|^NoSuchBucket$"
)
_IN_USE = frozenset(
    {"DependencyViolation", "DeleteConflict", "InvalidIPAddress.InUse", "InvalidPlacementGroup.InUse"}
    | {"InvalidNetworkInterface.InUse", "ResourceInUse", "ResourceInUseException", "OperationAborted"}
    | {"OperationAbortedException", "ConcurrentModification", "ConcurrentModificationException"}
    | {"IncorrectState", "BucketNotEmpty", "OperationInProgress", "ConflictException"}
)
# A role, profile, rule or service-linked role that is seconds old is refused as if it were wrong.
_FRESH_CODES = frozenset(
    {
        "InvalidParameterException",
        "InvalidParameterValue",
        "InvalidNetworkSettings",
        "InvalidRequestException",
    }
    | {"MalformedPolicyDocument", "MalformedPolicyDocumentException"}
)
_FRESH_WORDS = re.compile(
    r"(role|profile|principal|policy).*(does not exist|not assumable|(cannot|could not) be assumed)"
    r"|(role|profile|principal|policy).*can(not|'t) be found"
    r"|trusted entity|policy must include|Error in role params|invalid principal|Invalid IAM Instance Profile"
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
_QUOTA = re.compile(r"LimitExceeded(Exception|Fault)?$|QuotaExceeded|^TooManyBuckets$|LimitExceeded\b")
_WRONG = re.compile(
    r"^Invalid|^Malformed|^Validation|^BadRequest|^Missing|^Unsupported|InvalidConfiguration$"
)

# The IAM action is the operation's name, except here.
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


# What a refusal means, the first that fits.
_REFUSALS: Sequence[tuple[Callable[[str], object], type[CloudrecError], str, str]] = (
    (
        _CREDENTIALS.__contains__,
        PreflightError,
        "AWS does not accept the credentials",
        "log in again (`aws sso login`, or new keys); look at the clock, and whether the region is enabled",
    ),
    (
        "OptInRequired".__eq__,
        PreflightError,
        "the account has not opted in",
        "enable the service or the region for the account",
    ),
    (
        _CAPACITY.__contains__,
        CloudrecError,
        "AWS has none of it, or allows no more",
        "allow other instance types or zones, or ask for a higher quota (Service Quotas)",
    ),
    (
        _QUOTA.search,
        PreflightError,
        "a quota of the account is used up",
        "remove what is not needed (`cloudrec leaks aws`), or ask for more in Service Quotas",
    ),
    (
        lambda what: _WRONG.search(what) and not _ABSENT.search(what),
        SpecError,
        "AWS refuses what it was asked for",
        "change the setting that this names in the spec",
    ),
)
# What a failure on this side means.
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
        "take one that ~/.aws/config names",
    ),
    (
        (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.SSOError),
        PreflightError,
        "the AWS credentials cannot be had",
        "log in again (`aws sso login`)",
    ),
    ((boto.NoRegionError,), PreflightError, "no AWS region is named", "set cluster.region, or AWS_REGION"),
    (
        _NETWORK,
        PreflightError,
        "AWS cannot be reached",
        "look at the network, the proxy, the region's name and AWS_ENDPOINT_URL",
    ),
    (
        (boto.ParamValidationError,),
        SpecError,
        "boto3 refuses what it was asked for",
        "change the setting that this names in the spec",
    ),
)


def code(error: Exception) -> str:
    """Return AWS's code of an error; the class's name where it is not AWS's."""
    if isinstance(error, UnfinishedError) and isinstance(error.__cause__, Exception):
        return code(error.__cause__)
    if isinstance(error, boto.ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def message(error: Exception) -> str:
    """Return AWS's own words."""
    if isinstance(error, boto.ClientError):
        return str(error.response.get("Error", {}).get("Message") or error)
    return str(error)


def is_absent(error: Exception) -> bool:
    """Tell whether it says that the thing is not there."""
    return isinstance(error, boto.ClientError) and _ABSENT.search(code(error)) is not None


def is_in_use(error: Exception) -> bool:
    """Tell whether AWS is at work on the thing, or something else stands on it."""
    return isinstance(error, boto.ClientError) and code(error) in _IN_USE


def is_transient(error: Exception) -> bool:
    """Tell whether the network, the rate limit or the service's health is in the way of a read."""
    return _is_throttle(error) or _is_lost(error)


def verdict(error: Exception) -> Verdict:
    """Tell whether the call that raised this may be made again."""
    if isinstance(error, UnfinishedError):
        cause = error.__cause__
        inner = verdict(cause) if isinstance(cause, Exception) else Verdict.FATAL
        return Verdict.LOST if inner is Verdict.RETRY else inner
    if _is_throttle(error):
        return Verdict.RETRY
    if _is_lost(error):
        return Verdict.LOST
    return _verdict_on_refusal(error) if isinstance(error, boto.ClientError) else Verdict.FATAL


def _verdict_on_refusal(error: boto.ClientError) -> Verdict:
    what = code(error)
    if what in _CAPACITY:
        return Verdict.UNAVAILABLE
    if what in _EXISTS:
        return Verdict.LOST
    is_fresh = what in _FRESH_CODES and _FRESH_WORDS.search(message(error)) is not None
    if what in _IN_USE or is_fresh or _NOT_YET.search(what):
        return Verdict.RETRY
    return Verdict.FATAL


def explain(error: Exception) -> CloudrecError:
    """Say in a person's words what it means, with the remedy and the exit code."""
    if isinstance(error, CloudrecError):
        return error
    if isinstance(error, UnfinishedError) and isinstance(error.__cause__, Exception):
        return explain(error.__cause__)
    if isinstance(error, boto.ClientError):
        return _explain_refusal(error)
    return _explain_local(error)


def _explain_refusal(error: boto.ClientError) -> CloudrecError:
    what, said = code(error), message(error)
    if what in _DENIED:
        return PreflightError(
            f"the credentials may not do {action_of(error)}: {said}",
            remedy="have that allowed; infra/aws/deployer-policy.json lists all that is needed",
        )
    for is_meant, kind, text, remedy in _REFUSALS:
        if is_meant(what):
            return kind(f"{text} ({error.operation_name}, {what}): {said}", remedy=remedy)
    return CloudrecError(f"AWS refuses {error.operation_name} ({what}): {said}")


def _explain_local(error: Exception) -> CloudrecError:
    for classes, kind, text, remedy in _LOCAL:
        if isinstance(error, classes):
            return kind(f"{text}: {error}", remedy=remedy)
    return CloudrecError(f"{type(error).__name__}: {error}")


def action_of(error: boto.ClientError) -> str:
    """Return the IAM action that a refused call needs, such as `ec2:CreateVpc`."""
    service = error.response.get("Error", {}).get("Service", "")
    action = f"{service}:{error.operation_name}" if service else str(error.operation_name)
    return _ACTIONS.get(action, action)


def _is_throttle(error: Exception) -> bool:
    return isinstance(error, boto.ClientError) and _THROTTLES.search(code(error)) is not None


def _is_lost(error: Exception) -> bool:
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        # EC2 says that it has no capacity with the status of a failure of its own.
        failed = status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED and code(error) not in _CAPACITY
        return failed or code(error) in _LOST
    # A reply that is cut short or is no reply of AWS's is as good as none.
    return isinstance(error, (*_NETWORK, ResponseParserError))
