"""The bucket that holds data, checkpoints and results: private, with folders; and who may use it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from google.api_core import exceptions as api

from cloudrec.cloud.driver import name_of
from cloudrec.engine.graph import Condition, Observed
from cloudrec.errors import StorageError
from cloudrec.providers.gcp import apis, labels, policies
from cloudrec.providers.gcp.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

BUCKET, BINDING = "bucket", "bucket-binding"
CLUSTER = "cluster"  # cluster.CLUSTER, which knows nothing of this file
KINDS: Mapping[str, AbstractSet[str]] = {
    BUCKET: frozenset({apis.API}),
    BINDING: frozenset({BUCKET, CLUSTER}),
}

_ROLE = "roles/storage.objectUser"
_TITLE = "cloudrec"  # of the condition of what we grant
_TIMEOUT_S = 60.0
_DELETIONS = 16  # calls at once
_KEPT_DAYS = 7  # that an upload which nobody finished is kept
_MEMBER = "principal://iam.googleapis.com/"


def resources(layout: Layout) -> list[Resource]:
    """Describe the bucket, and that runs may use their part of it."""
    bucket = layout.resource(
        BUCKET,
        needs=apis.needs(layout),
        properties={
            "bucket": layout.bucket,
            "location": layout.region.upper(),
            "public_access": "enforced",
            "uniform": True,
            "kms_key": layout.settings.kms_key,
            "soft_delete_s": 0,
        },
        holds_data=True,
    )
    binding = layout.resource(
        BINDING,
        # The pool of the members' identities is there once the project's first cluster is.
        needs=(bucket.key, layout.key(CLUSTER)),
        properties={
            "holder": f"b/{layout.bucket}",
            "member": layout.pod_principal,
            "grants": ((_ROLE, _within(layout)),),
        },
    )
    return [bucket, binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the drivers by kind."""
    return {BUCKET: BucketDriver(gcp), BINDING: BucketBindingDriver(gcp)}


def _within(layout: Layout) -> str:
    """Return the condition that keeps objects outside of the cluster's part out of reach; lists show them."""
    prefix = f"{layout.settings.prefix}/" if layout.settings.prefix else ""
    return (
        'resource.type != "storage.googleapis.com/Object" || '
        f'resource.name.startsWith("projects/_/buckets/{layout.bucket}/objects/{prefix}")'
    )


class BucketDriver(GcpDriver):
    """Handles buckets. A bucket's identity is its name."""

    kind = BUCKET
    changeable = frozenset({"public_access", "uniform", "soft_delete_s", "kms_key"})
    deadline_s = 3600.0  # of objects there may be many

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """List all of the project, and keep those with our labels."""
        listing = self.gcp.storage.list_buckets
        rows = self.gcp.or_none(
            lambda: self.gcp.repeat(lambda: list(listing(retry=None, timeout=_TIMEOUT_S)))
        )
        found = [self._observe(row) for row in rows or ()]
        return [seen for seen in found if self.is_mine(seen.tags, cluster)]

    def fetch(self, resource: Resource) -> Observed | None:
        """Look it up by its name; one of somebody else's bears no labels that we may read."""
        name = str(resource.properties["bucket"])
        try:
            return self._observe(self.gcp.repeat(lambda: self._get(name)))
        except api.NotFound:
            return None
        except api.Forbidden as error:
            if "storage.buckets.get" not in str(error):
                raise
            return Observed(kind=BUCKET, name=name, identity=name, condition=Condition.READY)

    def look(self, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        self.gcp.repeat(lambda: self._get(identity))
        return Condition.READY, ""

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Create the bucket as it should be; Google has no token for it, but knows a name only once."""
        del token, identities
        wanted = resource.properties
        bucket = self.gcp.storage.bucket(wanted["bucket"])
        bucket.labels = labels.encode(resource.tags)
        bucket.hierarchical_namespace_enabled = True  # renames of folders, and more requests a second
        bucket.add_lifecycle_abort_incomplete_multipart_upload_rule(age=_KEPT_DAYS)
        self._write(bucket, wanted)
        try:
            bucket.create(location=wanted["location"], retry=None, timeout=_TIMEOUT_S)
        except api.Conflict as error:
            if "own" not in str(error).partition("already")[2]:
                raise StorageError(
                    f"the bucket name {wanted['bucket']!r} belongs to somebody else",
                    remedy="choose another: --set cluster.settings.bucket=NAME, or another cluster name",
                ) from error
            raise
        return str(wanted["bucket"])

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Close it to the public again."""
        del identities
        bucket = self.gcp.repeat(lambda: self._get(observed.identity))
        self._write(bucket, resource.properties)
        bucket.patch(if_metageneration_match=bucket.metageneration, retry=None, timeout=_TIMEOUT_S)

    def remove(self, observed: Observed) -> None:
        """Delete the bucket with all that is in it."""
        client, name = self.gcp.storage, observed.identity
        listing = partial(client.list_blobs, name, versions=True, retry=None, timeout=_TIMEOUT_S)
        blobs = self.gcp.repeat(lambda: list(listing()))
        with ThreadPoolExecutor(_DELETIONS, thread_name_prefix="bucket") as pool:
            list(pool.map(self._drop, blobs))
        self._remove_folders(name)
        client.bucket(name).delete(retry=None, timeout=_TIMEOUT_S)

    def _drop(self, blob: Any) -> None:  # noqa: ANN401 - the SDK's object
        try:
            blob.bucket.delete_blob(blob.name, generation=blob.generation, retry=None, timeout=_TIMEOUT_S)
        except api.NotFound:
            return

    def _remove_folders(self, bucket: str) -> None:
        """Delete the folders, the deepest first: they are things of their own here."""
        path = f"/storage/v1/b/{bucket}/folders"
        names, token = list[str](), ""
        while True:
            query = f"?pageToken={quote(token, safe='')}" if token else ""
            answer = self.gcp.repeat(lambda: self.gcp.send("storage", "GET", f"{path}{query}"))  # noqa: B023 - used up in this round
            names += [row["name"] for row in answer.get("items", ())]
            token = answer.get("nextPageToken", "")
            if not token:
                break
        for name in sorted(names, key=lambda name: -name.count("/")):
            self.gcp.or_none(partial(self.gcp.send, "storage", "DELETE", f"{path}/{quote(name, safe='')}"))

    def _get(self, name: str) -> Any:  # noqa: ANN401 - the SDK's object
        return self.gcp.storage.get_bucket(name, retry=None, timeout=_TIMEOUT_S)

    @staticmethod
    def _write(bucket: Any, wanted: Mapping[str, Any]) -> None:  # noqa: ANN401 - the SDK's object
        bucket.iam_configuration.uniform_bucket_level_access_enabled = wanted["uniform"]
        bucket.iam_configuration.public_access_prevention = wanted["public_access"]
        bucket.soft_delete_policy.retention_duration_seconds = wanted["soft_delete_s"]
        if wanted["kms_key"]:
            bucket.default_kms_key_name = wanted["kms_key"]

    def _observe(self, row: Any) -> Observed:  # noqa: ANN401 - the SDK's object
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
                "kms_key": row.default_kms_key_name,
            },
            tags=tags,
            holds_data=True,
            location=self.gcp.region,
            created=row.time_created.timestamp() if row.time_created else None,
        )


class BucketBindingDriver(policies.BindingDriver):
    """Handles what runs may do with the bucket. Only what bears our condition is ours."""

    kind = BINDING
    title = _TITLE

    def holders(self, cluster: str | None) -> Iterable[tuple[str, Mapping[str, Mapping[str, str]]]]:
        """Look in the clusters' buckets."""
        for seen in BucketDriver(self.gcp).search(cluster):
            holder = f"b/{seen.identity}"
            tags = policies.inherited(seen.tags, BINDING)
            theirs = {each.who for each in policies.grants(self.gcp, holder) if each.title == _TITLE}
            yield holder, {who: tags for who in theirs if who.startswith(_MEMBER)}
