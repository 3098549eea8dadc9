"""Object stores that throttle, refuse, hang or lose responses."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cloudrec_contract.objectstore.base import StoreOptions
from cloudrec_contract.objectstore.bucket import BucketStore, part_bytes_at
from cloudrec_contract.objectstore.retries import Patience
from tests.standins.faults import Fault
from tests.trainer.support_clouds import small_parts
from trainer.base.errors import ConfigError
from trainer.checkpoint.store.base import MissingError, NameTakenError, Store, StoreError, open_store
from trainer.checkpoint.store.owner import FencedError, claim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.trainer.support_clouds import CloudPlace

LARGE = bytes(range(256)) * 47_000  # 12 MB: three parts of 5 MiB

# The method, path and query that identify each kind of request.
CREATES = {"s3": ("PUT", "/new"), "azure": ("PUT", "/new"), "gcs": ("POST", "ifGenerationMatch=0")}
PARTS = {"s3": ("PUT", "partNumber="), "azure": ("PUT", "comp=block&"), "gcs": ("POST", "upload_id=")}
LAST = {"s3": ("POST", "?uploadId="), "azure": ("PUT", "comp=blocklist"), "gcs": ("POST", "upload_id=")}
LISTS = {"s3": ("GET", "list-type=2"), "azure": ("GET", "comp=list"), "gcs": ("GET", "prefix=")}
READS = {"s3": ("GET", "/there"), "azure": ("GET", "/there"), "gcs": ("GET", "alt=media")}
REMOVALS = {"s3": ("DELETE", "/there"), "azure": ("DELETE", "/there"), "gcs": ("DELETE", "there")}


@pytest.fixture
def store(cloud: CloudPlace) -> Store:
    return small_parts(cloud.new_uri())


def _fail(cloud: CloudPlace, which: dict[str, tuple[str, str]], fault: Fault) -> Fault:
    fault.method, fault.holding = which[cloud.cloud]
    cloud.proxy.faults.append(fault)
    return fault


def _write(store: Store, name: str, data: bytes) -> None:
    with store.write(name) as file:
        file.write(data)


def test_creation_is_conditional_for_single_and_multipart_uploads(cloud: CloudPlace, store: Store) -> None:
    store.create("small", b"mine")
    store.create("large", LARGE)
    conditions = [
        (request.method, "if-none-match" in request.headers or "ifGenerationMatch=0" in request.path)
        for request in cloud.proxy.requests
    ]
    expected = {
        # one put; and for the large one: begin, three parts, complete
        "s3": [("PUT", True), ("POST", False), *[("PUT", False)] * 3, ("POST", True)],
        # what is below 64 MiB goes as one put
        "azure": [("PUT", True), ("PUT", True)],
        # one post; and for the large one: a session, which holds the condition, and three chunks
        "gcs": [("POST", True), ("POST", True), *[("POST", True)] * 3],
    }
    assert conditions == expected[cloud.cloud]
    with pytest.raises(NameTakenError):
        store.create("large", LARGE[::-1])
    assert store.read("large") == LARGE


def test_a_large_stream_is_a_multipart_upload_and_a_failed_one_leaves_no_object(
    cloud: CloudPlace, store: Store
) -> None:
    _write(store, "large", LARGE)
    method, holding = PARTS[cloud.cloud]
    parts = [each for each in cloud.proxy.requests if each.method == method and holding in each.path]
    assert len(parts) >= 2
    assert max(part.size for part in parts) <= 8 * 2**20
    assert store.read("large") == LARGE
    with pytest.raises(RuntimeError, match="midway"), store.write("other") as file:  # noqa: PT012
        file.write(LARGE)
        raise RuntimeError("midway")
    assert store.sizes() == {"large": len(LARGE)}


def test_part_sizes_grow_so_that_ten_thousand_parts_hold_ten_terabytes() -> None:
    least, position, parts = 32 * 2**20, 0, 0
    while position < 10 * 10**12:
        position += part_bytes_at(position, least)
        parts += 1
    assert 1_000 < parts <= 10_000
    assert part_bytes_at(40 * 2**30, least) == least


def test_tidying_aborts_orphaned_multipart_uploads(
    enter_cloud: Callable[[str], CloudPlace],
) -> None:
    cloud = enter_cloud("s3")
    store, other = small_parts(cloud.new_uri()), small_parts(cloud.new_uri())
    below, beside = store.objects, other.objects
    assert isinstance(below, BucketStore)
    assert isinstance(beside, BucketStore)
    for each in (below, beside):  # as a killed writer leaves them
        bucket, key, _ = each._files.split_path(f"{each._root}/a/b")
        each._files.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
    store.tidy()
    left = [upload["Key"] for upload in below._files.list_multipart_uploads("a-bucket")]
    assert len(left) == 1
    assert beside._root.endswith(left[0].removesuffix("/a/b"))
    other.tidy()


FAULTS: dict[str, Callable[[CloudPlace], Fault]] = {
    "throttled": lambda cloud: cloud.refusal(503),
    "an error of the store's own": lambda cloud: cloud.refusal(500),
    "cut off before the effect": lambda _: Fault("reset"),
    "cut off after the effect": lambda _: Fault("lose"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_creation_that_fails_once_is_retried_and_recognized(
    cloud: CloudPlace, store: Store, name: str
) -> None:
    fault = _fail(cloud, CREATES, FAULTS[name](cloud))
    store.create("new", b"mine")
    assert fault.times == 0
    assert store.read("new") == b"mine"
    with pytest.raises(NameTakenError):
        store.create("new", b"yours")


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("which", [PARTS, LAST], ids=["a part", "the completion"])
def test_a_stream_survives_a_failed_request(
    cloud: CloudPlace, store: Store, which: dict[str, tuple[str, str]], name: str
) -> None:
    _write(store, "there", b"before")
    fault = _fail(cloud, which, FAULTS[name](cloud))
    if cloud.cloud == "gcs" and which is LAST:
        fault.skip = 1  # the last of its chunks completes an upload
    _write(store, "there", LARGE)
    assert fault.times == 0
    assert store.read("there") == LARGE


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("which", [LISTS, READS, REMOVALS], ids=["listing", "reading", "removing"])
def test_listing_reading_and_removing_survive_a_failed_request(
    cloud: CloudPlace, store: Store, which: dict[str, tuple[str, str]], name: str
) -> None:
    store.create("there", b"data")
    fault = _fail(cloud, which, FAULTS[name](cloud))
    assert store.sizes() == {"there": 4}
    assert store.read("there") == b"data"
    store.remove(["there"])
    assert store.sizes() == {}
    assert fault.times == 0


@pytest.mark.parametrize("which", [CREATES, READS], ids=["creating", "reading"])
def test_an_unresponsive_store_is_retried(
    cloud: CloudPlace, store: Store, which: dict[str, tuple[str, str]]
) -> None:
    store.create("there", b"data")
    fault = _fail(cloud, which, Fault("hang"))
    store.create("new", b"mine")
    assert store.read("there") == b"data"
    assert fault.times == 0


def test_conflicting_conditional_uploads_are_retried(enter_cloud: Callable[[str], CloudPlace]) -> None:
    cloud = enter_cloud("s3")
    store = small_parts(cloud.new_uri())
    fault = _fail(cloud, CREATES, cloud.refusal(409))
    store.create("new", b"mine")
    assert fault.times == 0
    assert store.read("new") == b"mine"


def test_a_denied_request_is_reported_at_once_with_the_remedy(cloud: CloudPlace, store: Store) -> None:
    store.create("there", b"data")
    acts: list[tuple[dict[str, tuple[str, str]], Callable[[], object]]] = [
        (CREATES, lambda: store.create("new", b"mine")),
        (LAST, lambda: _write(store, "new", LARGE)),
        (READS, lambda: store.read("there")),
        (LISTS, store.sizes),
        (REMOVALS, lambda: store.remove(["there"])),
    ]
    for which, act in acts:
        fault = _fail(cloud, which, cloud.refusal(403, times=5))
        with pytest.raises(
            StoreError, match=r"refused .*give this process's identity the permission"
        ) as told:
            act()
        assert not isinstance(told.value, (NameTakenError, MissingError))
        assert fault.times == 4
        cloud.proxy.faults.clear()
    assert store.sizes() == {"there": 4}


def test_a_persistently_failing_store_is_reported_and_its_objects_are_intact(
    cloud: CloudPlace,
) -> None:
    patience = Patience(answer_s=1.0, attempts=2, rounds=2, pause_s=0.0)
    store = open_store(cloud.new_uri(), StoreOptions(patience=patience))
    store.create("there", b"data")
    cloud.proxy.faults.append(cloud.refusal(500, times=1_000))
    with pytest.raises(StoreError, match=r"new: the store did not do it .*see whether it can be reached"):
        store.create("new", b"mine")
    cloud.proxy.faults.clear()
    assert store.sizes() == {"there": 4}


def test_without_credentials_the_remedy_is_reported(
    enter_cloud: Callable[[str], CloudPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = enter_cloud("s3")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match=r"refused \(NoCredentialsError.*fix its credentials"):
        small_parts(cloud.new_uri()).create("new", b"mine")
    assert cloud.proxy.requests == []


def test_a_workload_identity_is_accepted_as_credentials(
    enter_cloud: Callable[[str], CloudPlace], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cloud = enter_cloud("s3")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    token = tmp_path / "token"
    token.write_text("as the cluster signed it")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/trainer")
    small_parts(cloud.new_uri()).create("new", b"mine")
    asked, put = cloud.proxy.requests
    assert (asked.method, asked.path) == ("POST", "/")  # of the token service
    assert "x-amz-security-token" in put.headers  # temporary, as the service gave it


def test_a_missing_bucket_is_reported(cloud: CloudPlace) -> None:
    store = small_parts(f"{cloud.scheme}://another-bucket/checkpoints")
    with pytest.raises(StoreError, match="another-bucket"):
        store.create("new", b"mine")
    with pytest.raises(StoreError, match="another-bucket"):
        _write(store, "new", b"mine")


def test_the_older_of_two_runs_in_one_bucket_is_fenced(cloud: CloudPlace) -> None:
    uri = cloud.new_uri()
    older = claim(open_store(uri), dict)
    older.check()
    newer = claim(open_store(uri), dict)
    newer.check()
    with pytest.raises(FencedError, match="another run"):
        older.check()


def test_a_cloud_store_imports_no_torch(cloud: CloudPlace) -> None:
    code = (
        "import sys\n"
        "from trainer.checkpoint.store.base import open_store\n"
        f"open_store({cloud.new_uri()!r}).create('a', b'x')\n"
        "print(sorted({'torch', 'torchrec'} & set(sys.modules)))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("uri", "module", "extra"),
    [
        ("s3://bucket/a", "s3fs", "aws"),
        ("abfs://box@account.dfs.core.windows.net/a", "adlfs", "azure"),
        ("gs://bucket/a", "gcsfs", "gcp"),
    ],
)
def test_a_missing_extra_is_named(uri: str, module: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from trainer.checkpoint.store.base import open_store\n"
        "from trainer.base.errors import ConfigError\n"
        f"try: open_store({uri!r})\n"
        "except ConfigError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{module} is not installed" in found.stdout
    assert f"pip install 'cloudrec[{extra}]'" in found.stdout


@pytest.mark.parametrize(
    ("uri", "told"), [("s3://", "bucket"), ("gs:///", "bucket"), ("abfs://", "container")]
)
def test_a_uri_without_a_bucket_is_reported(uri: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
    with pytest.raises(ConfigError, match=rf"checkpoint_dir.*names no {told}"):
        open_store(uri)


def test_a_missing_azure_account_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="account_name"):
        open_store("abfs://box/a")
