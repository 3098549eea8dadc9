"""Buckets, their policies, objects and folders, with the storage SDK."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from google.api_core.exceptions import GoogleAPICallError, NotFound, PreconditionFailed
from google.cloud import storage

from tests.sandbox.gcp.support import NUMBER, PROJECT, REGION, Gcp
from tests.sandbox.gcp.support_gke import ready

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW_S = 2.0  # virtual seconds between two creations or deletions of buckets


@pytest.fixture
def client(gcp: Gcp) -> Iterator[Any]:
    options = {"api_endpoint": gcp.endpoint}
    with storage.Client(project=PROJECT, credentials=gcp.credentials, client_options=options) as client:
        yield client


@contextmanager
def turned_down(status: int, words: str) -> Iterator[None]:
    with pytest.raises(GoogleAPICallError, match=words) as caught:
        yield
    assert caught.value.code == status


def make(client: Any, name: str = "runs", *, tree: bool = False, versions: bool = False) -> Any:
    bucket = client.bucket(name)
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.iam_configuration.public_access_prevention = "enforced"
    bucket.hierarchical_namespace_enabled = tree
    bucket.versioning_enabled = versions
    bucket.create(location=REGION, retry=None)
    return bucket


def test_an_existing_bucket_is_refused_with_its_ownership(gcp: Gcp, client: Any) -> None:
    make(client)
    with turned_down(409, "you already own it"):
        make(client)
    gcp.control(taken_buckets=["theirs"])
    gcp.advance(SLOW_S)
    with turned_down(409, "shared by all users of the system"):
        make(client, "theirs")


def test_bucket_creation_is_rate_limited(gcp: Gcp, client: Any) -> None:
    make(client, "one")
    make(client, "two")
    with turned_down(429, "rate limit for creating and deleting buckets"):
        make(client, "three")
    gcp.advance(SLOW_S)
    make(client, "three")


def test_a_bucket_with_objects_is_not_deleted(client: Any) -> None:
    bucket = make(client)
    bucket.blob("a/b").upload_from_string(b"x")
    with turned_down(409, "not empty"):
        bucket.delete(retry=None)


def test_a_bucket_with_noncurrent_versions_is_not_deleted(gcp: Gcp, client: Any) -> None:
    bucket = make(client, versions=True)
    bucket.blob("a").upload_from_string(b"1")
    bucket.blob("a").delete()
    assert list(client.list_blobs("runs")) == []
    with turned_down(409, "not empty"):
        bucket.delete(retry=None)
    for old in client.list_blobs("runs", versions=True):
        old.delete()
    gcp.advance(SLOW_S)
    bucket.delete(retry=None)
    assert gcp.state() == []


def test_a_hierarchical_bucket_keeps_folders_after_their_objects(gcp: Gcp, client: Any) -> None:
    bucket = make(client, tree=True)
    blob = bucket.blob("a/b/c")
    blob.upload_from_string(b"x")
    url = "/storage/v1/b/runs/folders"
    assert [row["name"] for row in gcp.rest("GET", url)[1]["items"]] == ["a/", "a/b/"]
    assert gcp.rest("DELETE", f"{url}/a%2Fb%2F")[0] == 409
    blob.delete()
    with turned_down(409, "not empty"):
        bucket.delete(retry=None)
    assert gcp.rest("DELETE", f"{url}/a%2F")[0] == 409
    assert gcp.rest("DELETE", f"{url}/a%2Fb%2F")[0] == 204
    assert gcp.rest("DELETE", f"{url}/a%2F")[0] == 204
    gcp.advance(SLOW_S)
    bucket.delete(retry=None)


def test_a_flat_bucket_has_no_folders(gcp: Gcp, client: Any) -> None:
    make(client)
    assert gcp.rest("GET", "/storage/v1/b/runs/folders")[0] == 409


@pytest.mark.parametrize("name", ["Upper", "ab", "goog-runs", "my-google-runs", "x" * 64])
def test_a_bucket_with_an_invalid_name_is_refused(client: Any, name: str) -> None:
    with turned_down(400, "Invalid bucket name"):
        make(client, name)


def test_a_hierarchical_bucket_needs_uniform_access_and_has_no_versioning(client: Any) -> None:
    bucket = client.bucket("runs")
    bucket.hierarchical_namespace_enabled = True
    with turned_down(400, "uniform bucket-level access"):
        bucket.create(location=REGION, retry=None)
    with turned_down(400, "versioning"):
        make(client, "versions", tree=True, versions=True)


def test_a_bucket_policy_accepts_workload_identities_once_their_pool_exists(gcp: Gcp, client: Any) -> None:
    bucket = make(client)
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.version = 3
    who = f"principal://iam.googleapis.com/projects/{NUMBER}/locations/global/workloadIdentityPools/"
    who += f"{PROJECT}.svc.id.goog/subject/ns/runs/sa/trainer"
    policy.bindings.append({"role": "roles/storage.objectUser", "members": {who}})
    with turned_down(400, "Identity Pool does not exist"):
        bucket.set_iam_policy(policy)
    ready(gcp, workload_identity_config={"workload_pool": f"{PROJECT}.svc.id.goog"})
    bucket.set_iam_policy(policy)


def test_a_bucket_policy_with_an_old_etag_is_refused(gcp: Gcp, client: Any) -> None:
    bucket = make(client)
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": "roles/storage.objectUser", "members": {"user:a@example.com"}})
    bucket.set_iam_policy(policy)
    with pytest.raises(PreconditionFailed):
        bucket.set_iam_policy(policy)
    gcp.advance(SLOW_S * 2)
    roles = [each["role"] for each in bucket.get_iam_policy(requested_policy_version=3).bindings]
    assert "roles/storage.objectUser" in roles


def test_public_access_and_roles_of_other_services_are_refused_in_bucket_policies(client: Any) -> None:
    bucket = make(client)
    for role, who, status in (
        ("roles/storage.objectViewer", "allUsers", 412),
        ("roles/logging.logWriter", "user:a@example.com", 400),
    ):
        policy = bucket.get_iam_policy(requested_policy_version=3)
        policy.bindings.append({"role": role, "members": {who}})
        with pytest.raises(GoogleAPICallError) as caught:
            bucket.set_iam_policy(policy)
        assert caught.value.code == status


def test_an_object_is_written_only_if_its_generation_matches(client: Any) -> None:
    blob = make(client).blob("lock")
    blob.upload_from_string(b"1", if_generation_match=0)
    first = blob.generation
    with pytest.raises(PreconditionFailed):
        blob.upload_from_string(b"2", if_generation_match=0)
    blob.upload_from_string(b"2", if_generation_match=first)
    with pytest.raises(PreconditionFailed):
        blob.delete(if_generation_match=first)
    assert blob.download_as_bytes() == b"2"
    blob.delete(if_generation_match=blob.generation)
    with pytest.raises(NotFound):
        blob.download_as_bytes()


def test_an_object_round_trips_in_simple_multipart_and_resumable_uploads(client: Any) -> None:
    bucket, data = make(client), bytes(range(256)) * 2048 + b"\r\n--\r\n"
    bucket.blob("two-parts").upload_from_string(data)
    bucket.blob("session", chunk_size=256 * 1024).upload_from_string(data)
    for name in ("two-parts", "session"):
        assert bucket.blob(name).download_as_bytes() == data
        assert bucket.blob(name).download_as_bytes(start=255, end=257) == data[255:258]
    copied = bucket.copy_blob(bucket.blob("session"), bucket, "copy")
    assert copied.size == len(data)


def test_objects_are_listed_by_prefix_delimiter_and_page(client: Any) -> None:
    bucket = make(client)
    for name in ("a", "runs/1/x", "runs/1/y", "runs/2/x"):
        bucket.blob(name).upload_from_string(b"")
    assert [blob.name for blob in client.list_blobs("runs", prefix="runs/1/", page_size=1)] == [
        "runs/1/x",
        "runs/1/y",
    ]
    grouped = client.list_blobs("runs", prefix="runs/", delimiter="/")
    assert [blob.name for blob in grouped] == []
    assert sorted(grouped.prefixes) == ["runs/1/", "runs/2/"]


def test_a_bucket_patch_with_an_old_metageneration_is_refused(client: Any) -> None:
    bucket = make(client)
    old = bucket.metageneration
    bucket.labels = {"a": "b"}
    bucket.patch(if_metageneration_match=old)
    with pytest.raises(PreconditionFailed):
        client.get_bucket("runs", if_metageneration_match=old)
    assert client.get_bucket("runs").labels == {"a": "b"}
