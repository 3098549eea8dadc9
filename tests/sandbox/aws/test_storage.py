"""S3, KMS, ECR and log groups refuse and delay as the cloud does; names begin with the kind of thing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.support import CONFIG, Aws, refused, trust

NAME = "training-data-0"
IMAGE = "application/vnd.docker.distribution.manifest.v2+json"
DENY_PLAIN = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{NAME}", f"arn:aws:s3:::{NAME}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    ],
}


def in_region(aws: Aws, region: str) -> Any:
    return aws._session.client("s3", endpoint_url=aws.endpoint, config=CONFIG, region_name=region)


def test_s3_bucket_name_is_in_use_for_some_time_after_deletion(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=NAME)
    s3.delete_bucket(Bucket=NAME)
    with refused("404"):
        s3.head_bucket(Bucket=NAME)
    with refused("OperationAborted"):
        s3.create_bucket(Bucket=NAME)
    aws.advance(30)
    s3.create_bucket(Bucket=NAME)


def test_s3_bucket_of_the_same_account_can_be_created_again_only_in_us_east_1(aws: Aws) -> None:
    for _ in range(2):
        aws.client("s3").create_bucket(Bucket=NAME)
    there, place = in_region(aws, "eu-west-1"), {"LocationConstraint": "eu-west-1"}
    there.create_bucket(Bucket="training-data-1", CreateBucketConfiguration=place)
    with refused("BucketAlreadyOwnedByYou"):
        there.create_bucket(Bucket="training-data-1", CreateBucketConfiguration=place)


def test_s3_bucket_of_another_account_cannot_be_created_read_or_used(aws: Aws) -> None:
    s3 = aws.client("s3")
    aws.control(foreign_buckets=[NAME])
    with refused("BucketAlreadyExists"):
        s3.create_bucket(Bucket=NAME)
    with refused("403"):
        s3.head_bucket(Bucket=NAME)
    with refused("AccessDenied"):
        s3.put_object(Bucket=NAME, Key="k", Body=b"")
    assert s3.list_buckets()["Buckets"] == []
    s3.get_waiter("bucket_exists").wait(Bucket=NAME)  # the SDK takes 403 for success


@pytest.mark.parametrize("name", ["Capital-Letters", "under_score", "two..dots", "10.0.0.1", "-dash"])
def test_s3_bucket_with_an_invalid_name_is_refused(aws: Aws, name: str) -> None:
    with refused("InvalidBucketName"):
        aws.client("s3").create_bucket(Bucket=name)


@pytest.mark.parametrize(
    ("region", "status", "words"),
    [
        ("us-west-2", 301, "<Code>PermanentRedirect</Code>"),
        ("us-east-1", 400, "the region 'us-east-1' is wrong; expecting 'eu-west-1'"),  # the global endpoint
    ],
)
def test_s3_bucket_of_another_region_is_refused_with_its_region(
    aws: Aws, region: str, status: int, words: str
) -> None:
    place = {"LocationConstraint": "eu-west-1"}
    in_region(aws, "eu-west-1").create_bucket(Bucket=NAME, CreateBucketConfiguration=place)
    in_region(aws, "eu-west-1").put_object(Bucket=NAME, Key="k", Body=b"v")
    answers: list[Any] = []
    for operation in ("head_bucket", "head_object", "get_object", "list_objects_v2"):
        s3, before = in_region(aws, region), len(aws.calls())
        s3.meta.events.register_first("before-parse.s3", lambda **seen: answers.append(seen["response_dict"]))
        getattr(s3, operation)(Bucket=NAME, **({"Key": "k"} if operation.endswith("_object") else {}))
        assert [call["status"] for call in aws.calls(since=before)] == [status, 200]  # the SDK follows
        refusal = answers[-2]
        if operation.startswith("head"):  # without a body, the header alone names the region
            assert (refusal["body"], refusal["headers"]["x-amz-bucket-region"]) == (b"", "eu-west-1")
        else:
            assert words in refusal["body"].decode()


def test_s3_bucket_delete_with_objects_versions_or_delete_markers_is_refused(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=NAME)
    s3.put_bucket_versioning(Bucket=NAME, VersioningConfiguration={"Status": "Enabled"})
    version = s3.put_object(Bucket=NAME, Key="k", Body=b"")["VersionId"]
    marker = s3.delete_object(Bucket=NAME, Key="k")["VersionId"]
    with refused("BucketNotEmpty"):
        s3.delete_bucket(Bucket=NAME)
    s3.delete_object(Bucket=NAME, Key="k", VersionId=version)
    with refused("BucketNotEmpty"):
        s3.delete_bucket(Bucket=NAME)
    s3.delete_object(Bucket=NAME, Key="k", VersionId=marker)
    s3.delete_bucket(Bucket=NAME)


def test_s3_bucket_location_must_match_the_region(aws: Aws) -> None:
    s3 = aws.client("s3")
    with refused("InvalidLocationConstraint"):
        s3.create_bucket(Bucket=NAME, CreateBucketConfiguration={"LocationConstraint": "us-east-1"})
    with refused("IllegalLocationConstraintException"):
        in_region(aws, "eu-west-1").create_bucket(Bucket=NAME)


def test_s3_policy_that_denies_plain_http_is_stored_without_a_lockout(aws: Aws) -> None:
    s3, policy = aws.client("s3"), json.dumps(DENY_PLAIN)
    s3.create_bucket(Bucket=NAME)
    s3.put_bucket_policy(Bucket=NAME, Policy=policy)
    s3.put_object(Bucket=NAME, Key="k", Body=b"data")
    assert s3.get_object(Bucket=NAME, Key="k")["Body"].read() == b"data"
    assert s3.get_bucket_policy(Bucket=NAME)["Policy"] == policy
    s3.delete_bucket_policy(Bucket=NAME)
    with refused("NoSuchBucketPolicy"):
        s3.get_bucket_policy(Bucket=NAME)


def test_s3_policy_with_a_missing_principal_is_refused(aws: Aws) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=NAME)
    policy = json.dumps(DENY_PLAIN).replace('"*"', '{"AWS": "arn:aws:iam::123456789012:role/missing"}', 1)
    with refused("MalformedPolicy", "Invalid principal"):
        s3.put_bucket_policy(Bucket=NAME, Policy=policy)


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_s3_bucket_is_created_with_its_tags(aws: Aws, region: str) -> None:
    s3, tags = in_region(aws, region), [{"Key": "run", "Value": "a"}]
    place = {} if region == "us-east-1" else {"LocationConstraint": region}
    s3.create_bucket(Bucket=NAME, CreateBucketConfiguration={**place, "Tags": tags})
    assert s3.get_bucket_tagging(Bucket=NAME)["TagSet"] == tags


def key_policy(principal: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "kms:*", "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_kms_key_with_a_missing_or_new_role_in_its_policy_is_refused(aws: Aws) -> None:
    kms, policy = aws.client("kms"), key_policy("arn:aws:iam::123456789012:role/nodes")
    with refused("MalformedPolicyDocumentException", "invalid principals"):
        kms.create_key(Policy=policy)
    aws.client("iam").create_role(RoleName="nodes", AssumeRolePolicyDocument=trust("ec2"))
    with refused("MalformedPolicyDocumentException", "invalid principals"):
        kms.create_key(Policy=policy)
    aws.advance(10)
    kms.create_key(Policy=policy, BypassPolicyLockoutSafetyCheck=True)
    kms.create_key(Policy=key_policy("arn:aws:iam::123456789012:root"))


def test_kms_key_a_second_call_creates_a_second_key(aws: Aws) -> None:
    made = [aws.client("kms").create_key()["KeyMetadata"]["KeyId"] for _ in range(2)]
    assert made[0] != made[1]


def test_kms_key_pending_deletion_keeps_its_alias(aws: Aws) -> None:
    kms = aws.client("kms")
    key, other = (kms.create_key()["KeyMetadata"]["KeyId"] for _ in range(2))
    kms.create_alias(AliasName="alias/cloudrec", TargetKeyId=key)
    kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "PendingDeletion"
    assert f"kms:key:{key}" in aws.pending()
    with refused("AlreadyExistsException"):
        kms.create_alias(AliasName="alias/cloudrec", TargetKeyId=other)
    kms.delete_alias(AliasName="alias/cloudrec")
    kms.create_alias(AliasName="alias/cloudrec", TargetKeyId=other)
    aws.advance(7 * 86400)
    with refused("NotFoundException"):
        kms.describe_key(KeyId=key)


def test_kms_key_can_be_addressed_by_its_arn(aws: Aws) -> None:
    kms = aws.client("kms")
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    kms.enable_key_rotation(KeyId=arn)
    kms.disable_key(KeyId=arn)
    kms.enable_key(KeyId=arn)
    kms.create_alias(AliasName="alias/cloudrec", TargetKeyId=arn)
    kms.tag_resource(KeyId=arn, Tags=[{"TagKey": "a", "TagValue": "1"}])
    kms.put_key_policy(KeyId=arn, Policy=key_policy("arn:aws:iam::123456789012:root"))
    assert kms.list_resource_tags(KeyId=arn)["Tags"] == [{"TagKey": "a", "TagValue": "1"}]
    kms.schedule_key_deletion(KeyId=arn, PendingWindowInDays=7)
    kms.cancel_key_deletion(KeyId=arn)
    assert kms.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"] == "Disabled"


def test_kms_key_pending_deletion_cannot_be_used(aws: Aws) -> None:
    kms = aws.client("kms")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    with refused("KMSInvalidStateException"):
        kms.encrypt(KeyId=key, Plaintext=b"x")
    with refused("KMSInvalidStateException"):
        kms.create_alias(AliasName="alias/late", TargetKeyId=key)
    with refused("KMSInvalidStateException"):
        kms.schedule_key_deletion(KeyId=key)


def test_ecr_repository_that_exists_or_has_images_is_refused(aws: Aws) -> None:
    ecr = aws.client("ecr")
    ecr.create_repository(repositoryName="train")
    with refused("RepositoryAlreadyExistsException"):
        ecr.create_repository(repositoryName="train")
    manifest = {
        "schemaVersion": 2,
        "mediaType": IMAGE,
        "config": {"digest": "sha256:0"},
        "layers": [{"digest": "sha256:1"}],
    }
    ecr.put_image(repositoryName="train", imageManifest=json.dumps(manifest), imageTag="v1")
    with refused("RepositoryNotEmptyException"):
        ecr.delete_repository(repositoryName="train")
    ecr.delete_repository(repositoryName="train", force=True)
    with refused("RepositoryNotFoundException"):
        ecr.describe_repositories(repositoryNames=["train"])


def test_log_group_that_exists_is_refused(aws: Aws) -> None:
    logs = aws.client("logs")
    logs.create_log_group(logGroupName="/train")
    with refused("ResourceAlreadyExistsException"):
        logs.create_log_group(logGroupName="/train")
    with refused("InvalidParameterException"):
        logs.put_retention_policy(logGroupName="/train", retentionInDays=8)
    logs.delete_log_group(logGroupName="/train")
    with refused("ResourceNotFoundException"):
        logs.delete_log_group(logGroupName="/train")


@pytest.mark.parametrize("service", ["ecr", "kms", "logs", "fsx"])
def test_json_services_return_400_for_errors(aws: Aws, service: str) -> None:
    calls = {
        "ecr": lambda client: client.describe_repositories(repositoryNames=["missing"]),
        "kms": lambda client: client.describe_key(KeyId="00000000-0000-0000-0000-000000000000"),
        "logs": lambda client: client.delete_log_group(logGroupName="missing"),
        "fsx": lambda client: client.describe_file_systems(FileSystemIds=["fs-0123456789abcdef0"]),
    }
    with pytest.raises(ClientError) as caught:
        calls[service](aws.client(service))
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
