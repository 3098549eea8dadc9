"""The bucket of data, checkpoints and results: private, encrypted and versioned."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar, cast

from botocore.exceptions import ClientError

from cloudrec.engine.cost import BY_USE
from cloudrec.engine.graph import Condition, Difference, Observed
from cloudrec.errors import StorageError
from cloudrec.providers.aws import errors
from cloudrec.providers.aws.api.driver import AwsDriver, as_list, as_map
from cloudrec.providers.aws.identity import encryption
from cloudrec.providers.base.driver import is_ours, name_of
from cloudrec.providers.base.storage.sharing import USED_BY, with_user
from cloudrec_contract.safe_json import safe_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from types_boto3_s3 import S3Client
    from types_boto3_s3.literals import BucketLocationConstraintType
    from types_boto3_s3.type_defs import (
        BucketLifecycleConfigurationTypeDef,
        CreateBucketConfigurationTypeDef,
        ObjectIdentifierTypeDef,
        PublicAccessBlockConfigurationTypeDef,
        ServerSideEncryptionByDefaultTypeDef,
    )

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.api.client import Aws
    from cloudrec.providers.aws.layout import AwsLayout

T = TypeVar("T")
BUCKET = "bucket"
KINDS: Mapping[str, AbstractSet[str]] = {BUCKET: frozenset({encryption.KEY})}

_NAMELESS_REGION = "us-east-1"  # the only region that S3 refuses as a LocationConstraint
_PREFIX = "cloudrec-"  # prefix of the bucket names that cloudrec chooses
_BATCH = 1000  # objects of one deletion call: S3's maximum
_DELETIONS = 8  # calls at the same time
_KEPT_DAYS = 7  # overwritten objects and unfinished uploads are deleted after so many days
# Error codes of buckets without tags, of another account or of another region.
_UNREADABLE = frozenset({"NoSuchTagSet", "AccessDenied", "403", "PermanentRedirect", "301"})
_NOT_SET = frozenset(
    {"NoSuchPublicAccessBlockConfiguration", "ServerSideEncryptionConfigurationNotFoundError"}
    | {"NoSuchBucketPolicy", "NoSuchLifecycleConfiguration"}
)
_PRIVATE: PublicAccessBlockConfigurationTypeDef = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
_LIFECYCLE: BucketLifecycleConfigurationTypeDef = {
    "Rules": [
        {
            "ID": "cloudrec",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "NoncurrentVersionExpiration": {"NoncurrentDays": _KEPT_DAYS},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _KEPT_DAYS},
        }
    ]
}


def resources(layout: AwsLayout) -> list[Resource]:
    """Describe the bucket; nothing if the runs use that of another cluster."""
    if not layout.has_own_storage:
        return []
    return [
        layout.resource(
            BUCKET,
            needs=encryption.needs(layout),
            properties=AwsBucketProperties(
                bucket=layout.bucket, kms_key=layout.settings.kms_key, policy=_policy(layout)
            ),
            holds_data=True,
            hourly_usd=BY_USE,
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {BUCKET: AwsBucketDriver(aws)}


def set_user(aws: Aws, bucket: str, cluster: str, region: str | None) -> None:
    """Tag a bucket with another cluster that uses it; without a region, remove that tag.

    S3 has no condition for a change of tags, so of two changes in the same second one may be lost. `up`
    writes the tag each time.
    """
    try:
        before = _tags(aws, bucket)
        after = with_user(before, cluster, region)
        if after != before:
            aws.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": as_list(after)})
    except ClientError as error:
        if errors.code(error) != "NoSuchBucket":
            raise


def _tags(aws: Aws, bucket: str) -> dict[str, str]:
    """Return a bucket's tags."""
    try:
        return as_map(aws.read(aws.s3.get_bucket_tagging, Bucket=bucket)["TagSet"])
    except ClientError as error:
        if errors.code(error) != "NoSuchTagSet":
            raise
        return {}


def _policy(layout: AwsLayout) -> Mapping[str, object]:
    """Return the bucket policy: requests without TLS are denied."""
    arn = f"arn:{layout.partition}:s3:::{layout.bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


@dataclass(frozen=True, kw_only=True)
class AwsBucketProperties(encryption.EncryptedProperties):
    """The requested properties of a bucket.

    Attributes:
        bucket: its name.
        policy: its bucket policy.
    """

    bucket: str
    policy: Mapping[str, object]


class AwsBucketDriver(AwsDriver[AwsBucketProperties]):
    """Handles buckets. The identity is the bucket's name."""

    kind = BUCKET
    deadline_s = 3600.0  # the name of a deleted bucket can stay in use so long
    poll_s = 1.0

    @property
    def s3(self) -> S3Client:
        """S3's client."""
        return self.aws.s3

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find buckets by cloudrec's prefix of names, and those that the user named by tag.

        Tags alone are not enough: the tagging API shows a new bucket only after minutes.
        """
        rows = self.aws.rows(
            self.s3.get_paginator("list_buckets").paginate,
            lambda page: page.get("Buckets"),
            Prefix=_PREFIX,
            BucketRegion=self.aws.region,
        )
        tagged = self.aws.tagged("s3", cluster)
        names = {row["Name"] for row in rows} | {arn.rpartition(":")[2] for arn in tagged}
        # A call for each bucket reads its tags.
        with ThreadPoolExecutor(_DELETIONS) as pool:
            found = list(pool.map(self._observe, sorted(names)))
        return [seen for seen in found if seen is not None and is_ours(seen.tags, cluster)]

    def find(self, resource: Resource[AwsBucketProperties]) -> Observed | None:
        """Find the bucket by its name; one of another account is returned without tags."""
        name = resource.properties.bucket
        seen = self._observe(name)
        # Without tags the bucket is not this cluster's, and reading its configuration may be denied.
        if seen is None or not seen.tags:
            return seen
        return replace(seen, properties=self._configuration(name))

    def difference(self, resource: Resource[AwsBucketProperties], observed: Observed) -> Difference | None:
        """Return the names of the parts of its configuration that differ from the request."""
        wanted: Mapping[str, object] = {
            "private": _PRIVATE,
            "encryption": "aws:kms",
            "versioning": "Enabled",
            "policy": resource.properties.policy,
            "lifecycle": True,
        }
        wrong = [name for name, value in wanted.items() if observed.properties.get(name) != value]
        return Difference(reason=f"{', '.join(wrong)} not as requested", in_place=True) if wrong else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; S3's error if the bucket does not exist."""
        self.aws.read(self.s3.head_bucket, Bucket=identity)
        return Condition.READY, ""

    def make(
        self, resource: Resource[AwsBucketProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Create the bucket; S3 has no idempotency token, but a name exists only once.

        Raises:
            StorageError: another account has a bucket of this name.
        """
        del token, identities
        name = resource.properties.bucket
        configuration: CreateBucketConfigurationTypeDef = {"Tags": as_list(resource.tags)}
        if self.aws.region != _NAMELESS_REGION:
            configuration["LocationConstraint"] = cast("BucketLocationConstraintType", self.aws.region)
        try:
            self.s3.create_bucket(
                Bucket=name,
                ObjectOwnership="BucketOwnerEnforced",
                CreateBucketConfiguration=configuration,
            )
        except ClientError as error:
            if errors.code(error) == "BucketAlreadyExists":
                raise StorageError(
                    f"the bucket name {name!r} belongs to another AWS account",
                    remedy="choose another: --set cluster.settings.bucket=NAME, or another cluster name",
                ) from error
            # The account has the bucket already: the response of an earlier call was lost.
            if errors.code(error) != "BucketAlreadyOwnedByYou":
                raise
        return name

    def complete(
        self, resource: Resource[AwsBucketProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Block public access and plain HTTP, and set encryption, tags, versioning and lifecycle."""
        self.s3.put_public_access_block(Bucket=identity, PublicAccessBlockConfiguration=_PRIVATE)
        encrypted: ServerSideEncryptionByDefaultTypeDef = {
            "SSEAlgorithm": "aws:kms",
            "KMSMasterKeyID": encryption.key_of(resource, identities),
        }
        self.s3.put_bucket_encryption(
            Bucket=identity,
            ServerSideEncryptionConfiguration={
                "Rules": [{"ApplyServerSideEncryptionByDefault": encrypted, "BucketKeyEnabled": True}]
            },
        )
        # S3 replaces all tags: those of other clusters that use the bucket stay.
        tags = {
            **{name: value for name, value in _tags(self.aws, identity).items() if name.startswith(USED_BY)},
            **resource.tags,
        }
        self.s3.put_bucket_tagging(Bucket=identity, Tagging={"TagSet": as_list(tags)})
        self.s3.put_bucket_versioning(Bucket=identity, VersioningConfiguration={"Status": "Enabled"})
        self.s3.put_bucket_lifecycle_configuration(Bucket=identity, LifecycleConfiguration=_LIFECYCLE)
        self.s3.put_bucket_policy(Bucket=identity, Policy=json.dumps(resource.properties.policy))

    def remove(self, observed: Observed) -> None:
        """Delete all versions of all objects, and then the bucket: S3 deletes only empty buckets."""
        bucket = observed.identity
        pages = self.s3.get_paginator("list_multipart_uploads").paginate
        for upload in self.aws.rows(pages, lambda page: page.get("Uploads"), Bucket=bucket):
            self.s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        with ThreadPoolExecutor(_DELETIONS) as pool:
            for _ in pool.map(lambda batch: self._delete(bucket, batch), self._batches(bucket)):
                pass  # the loop raises the errors of the calls
        self.s3.delete_bucket(Bucket=bucket)

    def _batches(self, bucket: str) -> Iterator[list[ObjectIdentifierTypeDef]]:
        pages = self.s3.get_paginator("list_object_versions").paginate(
            Bucket=bucket, PaginationConfig={"PageSize": _BATCH}
        )
        for page in pages:
            rows = [
                *((row["Key"], row["VersionId"]) for row in page.get("Versions", ())),
                *((row["Key"], row["VersionId"]) for row in page.get("DeleteMarkers", ())),
            ]
            if rows:
                yield [{"Key": key, "VersionId": version} for key, version in rows]

    def _delete(self, bucket: str, batch: Sequence[ObjectIdentifierTypeDef]) -> None:
        answer = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
        # S3 reports errors of single objects in a successful response.
        for refused in answer.get("Errors", ()):
            raise ClientError(
                {"Error": {"Code": refused["Code"], "Message": f"{refused['Key']}: {refused['Message']}"}},
                "DeleteObjects",
            )

    def _observe(self, name: str) -> Observed | None:
        """Return the bucket with its tags; without tags if they cannot be read; None if it does not exist."""
        try:
            tags = as_map(self.aws.read(self.s3.get_bucket_tagging, Bucket=name)["TagSet"])
        except ClientError as error:
            if errors.code(error) == "NoSuchBucket":
                return None
            # A denial by the caller's own policies does not show whose bucket it is.
            if errors.code(error) not in _UNREADABLE or errors.is_unpermitted(error):
                raise
            tags = {}
        return Observed(
            kind=BUCKET,
            name=name_of(tags, name),
            identity=name,
            condition=Condition.READY,
            tags=tags,
            holds_data=True,
            location=self.aws.region,
            hourly_usd=BY_USE,
        )

    def _configuration(self, name: str) -> Mapping[str, object]:
        """Return the parts of the configuration that `complete` sets; None for a part that is not set."""

        def read(get: Callable[[], T]) -> T | None:
            try:
                return self.aws.read(get)
            except ClientError as error:
                if errors.code(error) not in _NOT_SET:
                    raise
                return None

        private = read(lambda: self.s3.get_public_access_block(Bucket=name))
        encrypted = read(lambda: self.s3.get_bucket_encryption(Bucket=name))
        versioning = read(lambda: self.s3.get_bucket_versioning(Bucket=name))
        policy = read(lambda: self.s3.get_bucket_policy(Bucket=name))
        lifecycle = read(lambda: self.s3.get_bucket_lifecycle_configuration(Bucket=name))
        rules = encrypted["ServerSideEncryptionConfiguration"]["Rules"] if encrypted else []
        return {
            "private": private["PublicAccessBlockConfiguration"] if private else None,
            "encryption": rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] if rules else None,
            "versioning": versioning.get("Status") if versioning else None,
            "policy": safe_json(policy["Policy"]) if policy else None,
            "lifecycle": bool(lifecycle["Rules"]) if lifecycle else None,
        }
