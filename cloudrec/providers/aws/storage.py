"""The bucket that holds data, checkpoints and results: private, encrypted, versioned."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cloudrec.cloud.driver import is_ours, name_of
from cloudrec.engine.graph import Condition, Difference, Observed
from cloudrec.errors import StorageError
from cloudrec.providers.aws import encryption, errors
from cloudrec.providers.aws.driver import AwsDriver, as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.aws.client import Aws
    from cloudrec.providers.aws.layout import Layout

BUCKET = "bucket"
KINDS: Mapping[str, AbstractSet[str]] = {BUCKET: frozenset({encryption.KEY})}

_NAMELESS_REGION = "us-east-1"  # the one region that S3 does not want to be told
_PREFIX = "cloudrec-"  # what the names that we give begin with
_BATCH = 1000  # objects that one call deletes
_DELETIONS = 8  # calls at once
_KEPT_DAYS = 7  # that overwritten objects, and uploads that nobody finished, are kept
# A bucket without tags, or of another account or region.
_UNREADABLE = frozenset({"NoSuchTagSet", "AccessDenied", "403", "PermanentRedirect", "301"})
_NOT_SET = frozenset(
    {"NoSuchPublicAccessBlockConfiguration", "ServerSideEncryptionConfigurationNotFoundError"}
    | {"NoSuchBucketPolicy", "NoSuchLifecycleConfiguration"}
)
_PRIVATE = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
_LIFECYCLE = {
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


def resources(layout: Layout) -> list[Resource]:
    """Describe the bucket."""
    return [
        layout.resource(
            BUCKET,
            needs=encryption.needs(layout),
            properties={
                "bucket": layout.bucket,
                "kms_key": layout.settings.kms_key,
                "policy": _policy(layout),
            },
            holds_data=True,
        )
    ]


def drivers(aws: Aws) -> Mapping[str, AwsDriver]:
    """Return the driver by its kind."""
    return {BUCKET: BucketDriver(aws)}


def _policy(layout: Layout) -> Mapping[str, Any]:
    """Refuse whatever comes unencrypted."""
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


class BucketDriver(AwsDriver):
    """Handles buckets. A bucket's identity is its name."""

    kind = BUCKET
    deadline_s = 3600.0  # the name of one that was deleted can stay taken for as long
    poll_s = 1.0

    @property
    def s3(self) -> Any:  # noqa: ANN401 - boto3 has no types
        """S3's client."""
        return self.aws.client("s3")

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find by the names that we give, which no list delays, and by tag those that the user named."""
        rows = self.aws.read("s3", "list_buckets", "Buckets", Prefix=_PREFIX, BucketRegion=self.aws.region)
        tagged = self.aws.tagged("s3", cluster)
        names = {row["Name"] for row in rows} | {arn.rpartition(":")[2] for arn in tagged}
        with ThreadPoolExecutor(_DELETIONS) as pool:
            found = list(pool.map(self._observe, sorted(names)))
        return [seen for seen in found if seen is not None and is_ours(seen.tags, cluster)]

    def find(self, resource: Resource) -> Observed | None:
        """Look it up by its name; one of another account's bears no tag that we may read."""
        name = resource.properties["bucket"]
        seen = self._observe(name)
        if seen is None or not seen.tags:
            return seen
        return replace(seen, properties=self._configuration(name))

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Tell which parts of its configuration are not as they should be."""
        wanted = {
            "private": _PRIVATE,
            "encryption": "aws:kms",
            "versioning": "Enabled",
            "policy": resource.properties["policy"],
            "lifecycle": True,
        }
        wrong = [what for what, value in wanted.items() if observed.properties.get(what) != value]
        return Difference(reason=f"{', '.join(wrong)} not as asked for", in_place=True) if wrong else None

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.aws.read("s3", "head_bucket", Bucket=identity)
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the bucket; S3 has no token for it, but knows a name only once."""
        del token, identities
        name = str(resource.properties["bucket"])
        configuration: dict[str, Any] = {"Tags": as_list(resource.tags)}
        if self.aws.region != _NAMELESS_REGION:
            configuration["LocationConstraint"] = self.aws.region
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
            if errors.code(error) != "BucketAlreadyOwnedByYou":
                raise
        return name

    def complete(self, resource: Resource, identity: str, *, identities: Mapping[str, str]) -> None:
        """Close it to the public and to plain HTTP, encrypt it, and keep what is overwritten for a while."""
        self.s3.put_public_access_block(Bucket=identity, PublicAccessBlockConfiguration=_PRIVATE)
        encrypted = {
            "SSEAlgorithm": "aws:kms",
            "KMSMasterKeyID": encryption.key_of(resource, identities),
        }
        self.s3.put_bucket_encryption(
            Bucket=identity,
            ServerSideEncryptionConfiguration={
                "Rules": [{"ApplyServerSideEncryptionByDefault": encrypted, "BucketKeyEnabled": True}]
            },
        )
        self.s3.put_bucket_tagging(Bucket=identity, Tagging={"TagSet": as_list(resource.tags)})
        self.s3.put_bucket_versioning(Bucket=identity, VersioningConfiguration={"Status": "Enabled"})
        self.s3.put_bucket_lifecycle_configuration(Bucket=identity, LifecycleConfiguration=_LIFECYCLE)
        self.s3.put_bucket_policy(Bucket=identity, Policy=json.dumps(resource.properties["policy"]))

    def remove(self, observed: Observed) -> None:
        """Delete all that is in it, every version, and then the bucket."""
        bucket = observed.identity
        for upload in self.aws.read("s3", "list_multipart_uploads", "Uploads", Bucket=bucket):
            self.s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        with ThreadPoolExecutor(_DELETIONS) as pool:
            for _ in pool.map(lambda batch: self._delete(bucket, batch), self._batches(bucket)):
                pass  # an error of any comes out here
        self.s3.delete_bucket(Bucket=bucket)

    def _batches(self, bucket: str) -> Iterator[list[dict[str, str]]]:
        pages = self.s3.get_paginator("list_object_versions").paginate(
            Bucket=bucket, PaginationConfig={"PageSize": _BATCH}
        )
        for page in pages:
            rows = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
            if rows:
                yield [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in rows]

    def _delete(self, bucket: str, batch: Sequence[Mapping[str, str]]) -> None:
        answer = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": list(batch), "Quiet": True})
        for refused in answer.get("Errors", ()):
            raise ClientError(
                {"Error": {"Code": refused["Code"], "Message": f"{refused['Key']}: {refused['Message']}"}},
                "DeleteObjects",
            )

    def _observe(self, name: str) -> Observed | None:
        """Read a bucket's tags; one that is not ours to read has none."""
        try:
            tags = as_map(self.aws.read("s3", "get_bucket_tagging", Bucket=name)["TagSet"])
        except ClientError as error:
            if errors.code(error) == "NoSuchBucket":
                return None
            if errors.code(error) not in _UNREADABLE:
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
        )

    def _configuration(self, name: str) -> Mapping[str, Any]:
        """Read what `complete` writes; what is not set is None."""

        def read(operation: str, get: Callable[[Any], object]) -> object:
            try:
                return get(self.aws.read("s3", operation, Bucket=name))
            except ClientError as error:
                if errors.code(error) not in _NOT_SET:
                    raise
                return None

        def algorithm(answer: Any) -> object:  # noqa: ANN401 - boto3 has no types
            rule = answer["ServerSideEncryptionConfiguration"]["Rules"][0]
            return rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"]

        return {
            "private": read(
                "get_public_access_block", lambda answer: answer["PublicAccessBlockConfiguration"]
            ),
            "encryption": read("get_bucket_encryption", algorithm),
            "versioning": read("get_bucket_versioning", lambda answer: answer.get("Status")),
            "policy": read("get_bucket_policy", lambda answer: json.loads(answer["Policy"])),
            "lifecycle": read("get_bucket_lifecycle_configuration", lambda answer: bool(answer["Rules"])),
        }
