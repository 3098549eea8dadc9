"""cloudrec's store in a container of the stand-in: by Entra ID's tokens, with a hierarchical namespace."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from cloudrec_contract.objectstore.base import StoreOptions, UploadFile
from cloudrec_contract.objectstore.errors import AccessDeniedError, NoObjectError, ObjectExistsError
from cloudrec_contract.objectstore.open import open_store
from cloudrec_contract.objectstore.retries import Patience
from tests.sandbox.azure.support import Azure
from tests.sandbox.azure.support_blobs import ACCOUNT, CONTAINER, READER, grant, make_account

URI = f"abfs://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/runs"
PATIENCE = Patience(answer_s=60.0, attempts=2, rounds=2, pause_s=0.0)
OPTIONS = StoreOptions(part_bytes=5 * 2**20, patience=PATIENCE)
LARGE = bytes(range(256)) * 47_000  # 12 MB: three parts


@pytest.fixture(autouse=True)
def _account(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    azure.control(speed=0.001, durations={"*": 0}, registered=["*"])
    azure.group()
    make_account(azure)
    for name, value in azure.env.items():
        monkeypatch.setenv(name, value)


def test_objects_are_created_once_read_listed_and_removed(azure: Azure, tmp_path: Path) -> None:
    grant(azure)
    store = open_store(URI, OPTIONS)
    store.check()
    store.create("a/one", b"first")
    with pytest.raises(ObjectExistsError):
        store.create("a/one", b"second")
    store.put("a/one", b"third")
    with store.write("a/large") as file:
        file.write(LARGE)
    file_of = tmp_path / "file"
    file_of.write_bytes(LARGE)
    sent: list[int] = []
    upload = UploadFile(path=file_of, size=len(LARGE), crc32=f"{zlib.crc32(LARGE):08x}")
    store.upload("b/file", upload, sent.append)
    assert store.holds("b/file", upload)
    assert (store.read("a/one"), store.read("a/large", 5, 10)) == (b"third", LARGE[5:15])
    assert store.read("a/large") == LARGE
    assert store.read("a/one", 9, 5) == b""
    assert store.sizes() == {"a/large": len(LARGE), "a/one": 5, "b/file": len(LARGE)}
    assert store.sizes("a/l") == {"a/large": len(LARGE)}
    assert store.children() == {"a": -1, "b": -1}
    assert store.children("a") == {"large": len(LARGE), "one": 5}
    with pytest.raises(NoObjectError):
        store.read("a/none")
    store.remove(["a/one", "a/large", "b/file", "a/none"])
    assert store.sizes() == {}


def test_a_folder_whose_objects_are_removed_is_gone(azure: Azure) -> None:
    grant(azure)
    store = open_store(URI, OPTIONS)
    store.put("step-1/rank-0/part", b"1")
    store.put("step-2/part", b"2")
    store.remove(["step-1/rank-0/part"])
    assert store.children() == {"step-2": -1}
    store.put("step-1/part", b"3")
    assert store.sizes() == {"step-1/part": 1, "step-2/part": 1}


def test_in_a_flat_namespace_an_object_named_like_a_folder_stays(azure: Azure) -> None:
    azure.client("storage").storage_accounts.delete("cloudrec-one", ACCOUNT)
    azure.advance(600)
    make_account(azure, has_folders=False)
    grant(azure)
    store = open_store(URI, OPTIONS)
    store.put("a", b"1")
    store.put("a/b", b"2")
    store.remove(["a/b"])
    assert store.sizes() == {"a": 1}


def test_roles_and_network_rules_are_what_the_store_reports(azure: Azure) -> None:
    grant(azure, READER)
    store = open_store(URI, OPTIONS)
    store.check()
    with pytest.raises(AccessDeniedError, match="AuthorizationPermissionMismatch"):
        store.put("a", b"1")
    closed = {"properties": {"networkAcls": {"defaultAction": "Deny", "ipRules": []}}}
    azure.client("storage").storage_accounts.update("cloudrec-one", ACCOUNT, closed)
    with pytest.raises(AccessDeniedError, match="AuthorizationFailure"):
        store.check()
