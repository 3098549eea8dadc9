"""The classification and the messages of AWS errors."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.stub import Stubber

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UnreadableAnswerError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.client import Aws
from cloudrec.providers.aws.api.clients import AwsClients
from cloudrec.providers.base.driver import UnfinishedError

ARN = "arn:aws:iam::123456789012:user/me"


def refusal(code: str, message: str = "", *, status: int = 400, service: str = "ec2") -> boto.ClientError:
    answer: Any = {  # with what the client writes into it, and without what no one reads
        "Error": {"Code": code, "Message": message, "Service": service},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return boto.ClientError(answer, "CreateThing")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (refusal("RequestLimitExceeded", status=503), ErrorVerdict.RETRY),
        (refusal("Throttling"), ErrorVerdict.RETRY),
        (refusal("ThrottlingException", status=429), ErrorVerdict.RETRY),
        (refusal("DependencyViolation"), ErrorVerdict.RETRY),
        (refusal("InvalidVpcID.NotFound"), ErrorVerdict.RETRY),
        (refusal("NoSuchEntity", status=404), ErrorVerdict.RETRY),
        (refusal("ResourceInUseException", status=409), ErrorVerdict.RETRY),
        (refusal("InvalidParameterException", "Role arn:x does not exist"), ErrorVerdict.RETRY),
        (
            refusal("InvalidNetworkSettings", "do not permit Lustre LNET traffic on port 988"),
            ErrorVerdict.RETRY,
        ),
        (refusal("EntityAlreadyExists", status=409), ErrorVerdict.LOST),
        (refusal("InvalidGroup.Duplicate"), ErrorVerdict.LOST),
        (refusal("InternalError", status=500), ErrorVerdict.LOST),
        (refusal("ServiceUnavailable", status=503), ErrorVerdict.LOST),
        (boto.ReadTimeoutError(endpoint_url="https://x"), ErrorVerdict.LOST),
        (boto.ConnectionClosedError(endpoint_url="https://x"), ErrorVerdict.LOST),
        (refusal("InsufficientInstanceCapacity", status=500), ErrorVerdict.UNAVAILABLE),
        (refusal("MaxSpotInstanceCountExceeded"), ErrorVerdict.UNAVAILABLE),
        (refusal("VcpuLimitExceeded"), ErrorVerdict.UNAVAILABLE),
        (refusal("UnauthorizedOperation", status=403), ErrorVerdict.FATAL),
        (refusal("InvalidParameterException", "The version is not offered"), ErrorVerdict.FATAL),
        (refusal("VpcLimitExceeded"), ErrorVerdict.FATAL),
        (refusal("NotImplemented", status=501), ErrorVerdict.FATAL),
        (boto.NoCredentialsError(), ErrorVerdict.FATAL),
        (ValueError("ours"), ErrorVerdict.FATAL),
    ],
    ids=lambda value: errors.code(value) if isinstance(value, Exception) else value.value,
)
def test_the_verdict_decides_whether_a_call_is_retried(error: Exception, verdict: ErrorVerdict) -> None:
    assert errors.verdict(error) is verdict


def test_a_create_with_an_unknown_result_is_looked_up_before_a_retry() -> None:
    assert errors.verdict(UnfinishedError(refusal("Throttling"))) is ErrorVerdict.LOST
    assert errors.verdict(UnfinishedError(refusal("AccessDenied", status=403))) is ErrorVerdict.FATAL


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
        (UnfinishedError(refusal("AccessDenied", status=403)), PreflightError, "may not do ec2:CreateThing"),
    ],
    ids=lambda value: errors.code(value) if isinstance(value, Exception) else "",
)
def test_an_error_is_reported_with_its_exit_code(
    error: Exception, kind: type[CloudrecError], words: str
) -> None:
    explained = errors.explain(error)
    assert type(explained) is kind
    with pytest.raises(kind, match=words):
        raise explained


def test_the_iam_action_is_named_if_it_differs_from_the_operation() -> None:
    error = refusal("AccessDenied", status=403, service="s3")
    error.operation_name = "PutBucketEncryption"
    assert errors.action_of(error) == "s3:PutEncryptionConfiguration"


@pytest.mark.parametrize("value", ["1e308", "-1e300", "never"])
def test_a_time_in_an_answer_that_cannot_be_is_a_value_error(value: str) -> None:
    core = AwsClients({}, "us-east-1").session._session
    parser = core.get_component("response_parser_factory").create_parser("json")
    with pytest.raises(ValueError, match=value):
        parser._timestamp_parser(value)
    assert parser._timestamp_parser("2030-01-01T00:00:00Z").year == 2030


def test_an_account_that_cannot_be_is_no_account() -> None:
    aws = Aws({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, "us-east-1")
    with Stubber(aws.sts) as stub:
        for account in ("NaN", "", "12345678901"):
            stub.add_response("get_caller_identity", {"Account": account, "Arn": ARN, "UserId": "y"})
            with pytest.raises(UnreadableAnswerError, match="answered with account"):
                aws._identified()
        stub.add_response("get_caller_identity", {"Account": "123456789012", "Arn": ARN, "UserId": "y"})
        assert aws.account == "123456789012"
