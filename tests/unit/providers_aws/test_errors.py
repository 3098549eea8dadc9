"""What AWS's errors mean, to the engine and to a person."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto

from cloudrec.cloud.driver import UnfinishedError
from cloudrec.engine.graph import Verdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError
from cloudrec.providers.aws import errors


def refusal(code: str, message: str = "", *, status: int = 400, service: str = "ec2") -> boto.ClientError:
    return boto.ClientError(
        {
            "Error": {"Code": code, "Message": message, "Service": service},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "CreateThing",
    )


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (refusal("RequestLimitExceeded", status=503), Verdict.RETRY),
        (refusal("Throttling"), Verdict.RETRY),
        (refusal("ThrottlingException", status=429), Verdict.RETRY),
        (refusal("DependencyViolation"), Verdict.RETRY),
        (refusal("InvalidVpcID.NotFound"), Verdict.RETRY),
        (refusal("NoSuchEntity", status=404), Verdict.RETRY),
        (refusal("ResourceInUseException", status=409), Verdict.RETRY),
        (refusal("InvalidParameterException", "Role arn:x does not exist"), Verdict.RETRY),
        (refusal("InvalidNetworkSettings", "do not permit Lustre LNET traffic on port 988"), Verdict.RETRY),
        (refusal("EntityAlreadyExists", status=409), Verdict.LOST),
        (refusal("InvalidGroup.Duplicate"), Verdict.LOST),
        (refusal("InternalError", status=500), Verdict.LOST),
        (refusal("ServiceUnavailable", status=503), Verdict.LOST),
        (boto.ReadTimeoutError(endpoint_url="https://x"), Verdict.LOST),
        (boto.ConnectionClosedError(endpoint_url="https://x"), Verdict.LOST),
        (refusal("InsufficientInstanceCapacity", status=500), Verdict.UNAVAILABLE),
        (refusal("MaxSpotInstanceCountExceeded"), Verdict.UNAVAILABLE),
        (refusal("VcpuLimitExceeded"), Verdict.UNAVAILABLE),
        (refusal("UnauthorizedOperation", status=403), Verdict.FATAL),
        (refusal("InvalidParameterException", "The version is not offered"), Verdict.FATAL),
        (refusal("VpcLimitExceeded"), Verdict.FATAL),
        (refusal("NotImplemented", status=501), Verdict.FATAL),
        (boto.NoCredentialsError(), Verdict.FATAL),
        (ValueError("ours"), Verdict.FATAL),
    ],
    ids=lambda value: errors.code(value) if isinstance(value, Exception) else value.value,
)
def test_a_verdict_tells_whether_a_call_may_be_made_again(error: Exception, verdict: Verdict) -> None:
    assert errors.verdict(error) is verdict


def unfinished(cause: Exception) -> UnfinishedError:
    error = UnfinishedError(str(cause))
    error.__cause__ = cause
    return error


def test_what_was_made_and_not_completed_is_looked_for_before_another_is_made() -> None:
    assert errors.verdict(unfinished(refusal("Throttling"))) is Verdict.LOST
    assert errors.verdict(unfinished(refusal("AccessDenied", status=403))) is Verdict.FATAL


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (refusal("UnauthorizedOperation", status=403), PreflightError, "may not do ec2:CreateThing"),
        (refusal("AccessDenied", status=403, service="iam"), PreflightError, "may not do iam:CreateThing"),
        (refusal("ExpiredToken"), PreflightError, "does not accept the credentials"),
        (refusal("VpcLimitExceeded", "5 is the limit"), PreflightError, "quota.*5 is the limit"),
        (refusal("LimitExceededException", service="kms"), PreflightError, "quota"),
        (refusal("InvalidParameterValue", "x is wrong"), SpecError, "x is wrong"),
        (refusal("InvalidVpcID.NotFound", "vpc-1"), CloudrecError, "vpc-1"),
        (boto.NoCredentialsError(), PreflightError, "no AWS credentials"),
        (boto.NoRegionError(), PreflightError, "no AWS region"),
        (boto.EndpointConnectionError(endpoint_url="https://x"), PreflightError, "cannot be reached"),
        (boto.ProfileNotFound(profile="p"), PreflightError, "AWS_PROFILE"),
        (unfinished(refusal("AccessDenied", status=403)), PreflightError, "may not do ec2:CreateThing"),
    ],
    ids=lambda value: errors.code(value) if isinstance(value, Exception) else "",
)
def test_an_error_is_told_with_its_exit_code(error: Exception, kind: type[CloudrecError], words: str) -> None:
    explained = errors.explain(error)
    assert type(explained) is kind
    with pytest.raises(kind, match=words):
        raise explained


def test_the_iam_action_is_named_where_it_is_called_otherwise_than_the_operation() -> None:
    error = refusal("AccessDenied", status=403, service="s3")
    error.operation_name = "PutBucketEncryption"
    assert errors.action_of(error) == "s3:PutEncryptionConfiguration"
