"""The private bucket for data, checkpoints and results, and the access of runs to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from google.api_core import exceptions as api

from cloudrec.engine.cost import BY_USE, FREE
from cloudrec.engine.graph import Condition, Observed, Properties
from cloudrec.errors import StorageError
from cloudrec.providers.base.driver import name_of
from cloudrec.providers.base.layout import GUARD_ACCOUNT, guard_account_of
from cloudrec.providers.base.storage import sharing
from cloudrec.providers.gcp.api import apis, labels, policies, sdk
from cloudrec.providers.gcp.api.driver import GcpDriver
from cloudrec_contract.layout import turns_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

LUSTRE = "lustre"  # lustre.FILES, which this module does not import
GUARD = "guard"  # the suffix of the guard's access
BUCKET, BINDING = "bucket", "bucket-binding"
CLUSTER = "cluster"  # cluster.CLUSTER, which this module does not import
KINDS: Mapping[str, AbstractSet[str]] = {
    BUCKET: frozenset({apis.API}),
    BINDING: frozenset({BUCKET, CLUSTER, LUSTRE}),
}

_ROLE = "roles/storage.objectUser"
_READER = "roles/storage.objectViewer"
_CREATOR = "roles/storage.objectCreator"
_TITLE = "cloudrec"  # of the conditions of cloudrec's grants
_TIMEOUT_S = 60.0
_TRIES = 5  # of a change that another one may precede
_DELETIONS = 16  # parallel calls
_KEPT_DAYS = 7  # until an unfinished multipart upload is deleted
_MEMBER = "principal://iam.googleapis.com/"
_OF_GUARD = f"/sa/{GUARD_ACCOUNT}"


@dataclass(frozen=True, kw_only=True)
class BucketProperties(Properties):
    """The requested properties of a bucket.

    Attributes:
        bucket: its name, unique in the world.
        location: the region in capitals, as Cloud Storage writes it.
        public_access: "enforced" where public access is prevented, else "inherited".
        uniform: whether access is decided by the bucket's policy alone, with no lists of single objects.
        kms_key: the path of the key that encrypts new objects; empty for Google's.
        soft_delete_s: seconds that deleted objects are kept; 0 for none.
    """

    bucket: str
    location: str
    public_access: str
    uniform: bool
    kms_key: str
    soft_delete_s: int


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the bucket, and the access of runs to their part of the bucket.

    Nothing is described for a cluster whose runs use the bucket of another one. IAM knows their service
    account by the project and its name alone, so the access that the other cluster granted is theirs, too.
    """
    if not layout.has_own_storage:
        return []
    bucket = layout.resource(
        BUCKET,
        needs=apis.needs(layout),
        properties=BucketProperties(
            bucket=layout.bucket,
            location=layout.region.upper(),
            public_access="enforced",
            uniform=True,
            kms_key=layout.settings.kms_key or "",
            soft_delete_s=0,
        ),
        holds_data=True,
        hourly_usd=BY_USE,
    )
    binding = layout.resource(
        BINDING,
        # The workload identity pool, which the member is in, exists once the project has a cluster.
        needs=(bucket.key, layout.key(CLUSTER)),
        properties=policies.BindingProperties(
            holder=f"b/{layout.bucket}",
            member=layout.pod_principal,
            grants=((_ROLE, _within(layout, layout.prefix)),),
        ),
        hourly_usd=FREE,
    )
    return [
        bucket,
        binding,
        *([_turns_binding(layout, bucket.key)] if layout.cluster.managed else []),
        *([_lustre_binding(layout, bucket.key)] if layout.settings.lustre_gib else []),
    ]


def set_user(gcp: Gcp, bucket: str, cluster: str, region: str | None) -> None:
    """Label a bucket with another cluster that uses it; without a region, remove that label."""
    for _ in range(_TRIES):
        try:
            found = gcp.repeat(lambda: gcp.storage.get_bucket(bucket, retry=None, timeout=_TIMEOUT_S))
            before = dict(found.labels)
            after = sharing.with_user(before, cluster, region)
            if after != before:
                found.labels = after
                found.patch(if_metageneration_match=found.metageneration, retry=None, timeout=_TIMEOUT_S)
        except api.NotFound:
            return
        except api.PreconditionFailed:  # another change was faster
            continue
        return
    raise StorageError(
        f"the labels of the bucket {bucket} are changed all the time", remedy="run the command again"
    )


def lustre_agent(number: str) -> str:
    """Return Google's account of Managed Lustre in a project, which reads the bucket for an import."""
    return f"serviceAccount:service-{number}@gcp-sa-lustre.iam.gserviceaccount.com"


def _turns_binding(layout: GcpLayout, bucket: str) -> Resource[policies.BindingProperties]:
    """Describe the access of the keepers of managed clusters to the objects by which they take turns."""
    within = _within(layout, turns_uri(layout.prefix, "").strip("/"))
    return layout.resource(
        BINDING,
        GUARD,
        needs=(bucket, layout.key(CLUSTER)),
        properties=policies.BindingProperties(
            holder=f"b/{layout.bucket}",
            member=layout.principal(guard_account_of(layout.settings.service_account)),
            grants=((_CREATOR, within), (_READER, within)),
        ),
        hourly_usd=FREE,
    )


def _lustre_binding(layout: GcpLayout, bucket: str) -> Resource[policies.BindingProperties]:
    """Describe the access of Managed Lustre to the bucket, to import from it."""
    return layout.resource(
        BINDING,
        LUSTRE,
        needs=(bucket, layout.key(CLUSTER), layout.key(LUSTRE)),  # Google makes the account with the instance
        properties=policies.BindingProperties(
            holder=f"b/{layout.bucket}",
            member=lustre_agent(layout.number),
            grants=((_READER, _within(layout, layout.prefix)),),
        ),
        hourly_usd=FREE,
    )


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {BUCKET: GcpBucketDriver(gcp), BINDING: BucketBindingDriver(gcp)}


def _within(layout: GcpLayout, prefix: str) -> str:
    """Return the condition that allows only objects under a prefix; listing shows all names."""
    under = f"{prefix}/" if prefix else ""
    return (
        'resource.type != "storage.googleapis.com/Object" || '
        f'resource.name.startsWith("projects/_/buckets/{layout.bucket}/objects/{under}")'
    )


class GcpBucketDriver(GcpDriver[BucketProperties]):
    """Handles buckets. A bucket's identity is its name."""

    kind = BUCKET
    changeable = frozenset({"public_access", "uniform", "soft_delete_s", "kms_key"})
    deadline_s = 3600.0  # deleting the objects takes long if there are many

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List the buckets that have the cluster's labels."""
        listing = self.gcp.storage.list_buckets
        rows = self.gcp.or_none(
            lambda: self.gcp.repeat(lambda: list(listing(retry=None, timeout=_TIMEOUT_S)))
        )
        found = [self._observe(row) for row in rows or ()]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource[BucketProperties]) -> Observed | None:
        """Read the bucket by its name; another owner's bucket is returned without tags."""
        name = resource.properties.bucket
        try:
            return self._observe(self.gcp.repeat(lambda: self._get(name)))
        except api.NotFound:
            return None
        except api.Forbidden as error:
            # Names are global: a refused read means that the bucket exists, in another project.
            if "storage.buckets.get" not in str(error):
                raise
            return Observed(
                kind=BUCKET,
                name=name,
                identity=name,
                condition=Condition.READY,
                hourly_usd=BY_USE,
                reason="it is of another project, or these credentials lack storage.buckets.get",
            )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY; raises NotFound if the bucket does not exist."""
        self.gcp.repeat(lambda: self._get(identity))
        return Condition.READY, ""

    def make(self, resource: Resource[BucketProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Create the bucket. The API has no idempotency token, but refuses a second bucket of its name."""
        del token, identities
        wanted = resource.properties
        bucket = self.gcp.storage.bucket(wanted.bucket)
        bucket.labels = labels.encode(resource.tags)
        bucket.hierarchical_namespace_enabled = True  # folders can be renamed, and more requests per second
        bucket.add_lifecycle_abort_incomplete_multipart_upload_rule(age=_KEPT_DAYS)
        self._write(bucket, wanted)
        try:
            bucket.create(location=wanted.location, retry=None, timeout=_TIMEOUT_S)
        except api.Conflict as error:
            # "already own it": an earlier attempt created it. Any other conflict is with another owner.
            if "own" not in str(error).partition("already")[2]:
                raise StorageError(
                    f"the bucket name {wanted.bucket!r} is in use by another owner",
                    remedy="choose another with --set cluster.settings.bucket=NAME, or another cluster name",
                ) from error
            raise
        return wanted.bucket

    def change(
        self, resource: Resource[BucketProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Set public access, the kind of access, soft deletion and the key again."""
        del identities
        bucket = self.gcp.repeat(lambda: self._get(observed.identity))
        self._write(bucket, resource.properties)
        # Refused if another change was faster; the engine then reads the bucket and writes it again.
        bucket.patch(if_metageneration_match=bucket.metageneration, retry=None, timeout=_TIMEOUT_S)

    def remove(self, observed: Observed) -> None:
        """Delete the bucket with all its objects and folders."""
        client, name = self.gcp.storage, observed.identity
        # With older versions of objects, too: a bucket that has any cannot be deleted.
        blobs = self.gcp.repeat(
            lambda: list(client.list_blobs(name, versions=True, retry=None, timeout=_TIMEOUT_S))
        )
        with ThreadPoolExecutor(_DELETIONS, thread_name_prefix="bucket") as pool:
            list(pool.map(self._drop, blobs))
        self._remove_folders(name)
        client.bucket(name).delete(retry=None, timeout=_TIMEOUT_S)

    def _drop(self, blob: sdk.storage.Blob) -> None:
        try:
            blob.bucket.delete_blob(blob.name, generation=blob.generation, retry=None, timeout=_TIMEOUT_S)
        except api.NotFound:
            return

    def _remove_folders(self, bucket: str) -> None:
        """Delete the folders, the deepest first: with a hierarchical namespace, folders are resources."""
        path = f"/storage/v1/b/{bucket}/folders"
        names, token = list[str](), ""
        while True:
            query = f"?pageToken={quote(token, safe='')}" if token else ""
            answer = self.gcp.repeat(lambda: self.gcp.send("storage", "GET", f"{path}{query}"))  # noqa: B023 - called in this round
            names += [row["name"] for row in answer.get("items", ())]
            token = answer.get("nextPageToken", "")
            if not token:
                break
        for name in sorted(names, key=lambda name: -name.count("/")):
            self.gcp.or_none(partial(self.gcp.send, "storage", "DELETE", f"{path}/{quote(name, safe='')}"))

    def _get(self, name: str) -> sdk.storage.Bucket:
        return self.gcp.storage.get_bucket(name, retry=None, timeout=_TIMEOUT_S)

    @staticmethod
    def _write(bucket: sdk.storage.Bucket, wanted: BucketProperties) -> None:
        bucket.iam_configuration.uniform_bucket_level_access_enabled = wanted.uniform
        bucket.iam_configuration.public_access_prevention = wanted.public_access
        bucket.soft_delete_policy.retention_duration_seconds = wanted.soft_delete_s
        # A missing key is sent as null, which removes the present one.
        if wanted.kms_key or bucket.default_kms_key_name:
            bucket.default_kms_key_name = wanted.kms_key or None

    def _observe(self, row: sdk.storage.Bucket) -> Observed:
        tags = labels.decode(row.labels)
        return Observed(
            kind=BUCKET,
            name=name_of(tags, row.name),
            identity=row.name,
            condition=Condition.READY,
            properties={
                "location": row.location,
                "public_access": row.iam_configuration.public_access_prevention,
                "uniform": row.iam_configuration.uniform_bucket_level_access_enabled,
                "soft_delete_s": row.soft_delete_policy.retention_duration_seconds or 0,
                "kms_key": row.default_kms_key_name or "",
            },
            tags=tags,
            holds_data=True,
            location=self.gcp.region,
            created=row.time_created.timestamp() if row.time_created else None,
            hourly_usd=BY_USE,
        )


class BucketBindingDriver(policies.BindingDriver):
    """Handles the access of runs to the bucket: the grants whose condition has cloudrec's title."""

    kind = BINDING
    title = _TITLE

    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Return the clusters' buckets, each with the members that have a grant of cloudrec."""
        for seen in GcpBucketDriver(self.gcp).search(cluster):
            holder = f"b/{seen.identity}"
            tags = policies.inherited(seen.tags, BINDING)
            theirs = {each.account for each in policies.grants(self.gcp, holder) if each.title == _TITLE}
            agent, of_guard = lustre_agent(self.gcp.number), policies.inherited(seen.tags, BINDING, GUARD)
            yield (
                holder,
                {
                    **{
                        member: of_guard if member.endswith(_OF_GUARD) else tags
                        for member in theirs
                        if member.startswith(_MEMBER)
                    },
                    **({agent: policies.inherited(seen.tags, BINDING, LUSTRE)} if agent in theirs else {}),
                },
            )
