"""Azurite and the stand-in's Blob Storage give the same answers to the same requests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobBlock, BlobClient, BlobServiceClient, ContainerClient, ContentSettings

from tests.sandbox.azure.support import Azure
from tests.sandbox.azure.support_blobs import CONTAINER, blobs, grant, make_account
from tests.standins.servers import AZURITE_ACCOUNT, AZURITE_KEY, azurite, why_no_azurite

_LARGE = bytes(range(256)) * 12  # three blocks of 1 KiB
_OTHER_MD5 = bytearray(hashlib.md5(b"other", usedforsecurity=False).digest())
_SET = ContentSettings(content_type="a/b", content_md5=_OTHER_MD5, cache_control="no")
_LATER = datetime.now(UTC) + timedelta(days=4000)

Act = Callable[[ContainerClient], Any]
_Not = {"etag": "nothing", "match_condition": MatchConditions.IfNotModified}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerClient]:
    if why := why_no_azurite():
        pytest.skip(why)
    with azurite(tmp_path_factory.mktemp("azurite") / "log") as port:
        service = BlobServiceClient(
            f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}",
            credential=AZURITE_KEY,
            max_single_put_size=1024,
            max_block_size=1024,
            retry_total=0,
        )
        yield service.create_container(CONTAINER)


@pytest.fixture
def own(azure: Azure) -> ContainerClient:
    azure.control(speed=0.001, durations={"*": 0}, registered=["*"])
    azure.group()
    make_account(azure, has_folders=False)
    grant(azure)
    return blobs(azure)


def _staged(container: ContainerClient) -> BlobClient:
    blob = container.get_blob_client("staged")
    blob.stage_block("1", b"one")
    return blob


def _shown(blob: BlobClient) -> Any:
    found = blob.get_blob_properties()
    content = found.content_settings
    md5 = bytes(content.content_md5).hex() if content.content_md5 else None
    return found.size, found.metadata, content.content_type, md5, found.blob_type, content.cache_control


def _listed(container: ContainerClient, **options: Any) -> Any:
    pages = container.list_blobs(**options).by_page()
    return [[(each.name, each.size, each.metadata or {}) for each in page] for page in pages]


def _walked(container: ContainerClient, prefix: str) -> Any:
    return [each.name for each in container.walk_blobs(prefix)]


def _read(container: ContainerClient, name: str, *span: int, **options: Any) -> Any:
    return container.get_blob_client(name).download_blob(*span, **options).readall()


def _matching(container: ContainerClient) -> Any:
    etag = container.get_blob_client("small").get_blob_properties().etag
    options = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    return container.get_blob_client("small").upload_blob(b"again", overwrite=True, **options) is not None


# One after the other, on the same container.
SCRIPT: dict[str, Act] = {
    "a new blob": lambda c: c.upload_blob("small", b"data", metadata={"one": "1"}) and None,
    "its properties": lambda c: _shown(c.get_blob_client("small")),
    "a name that is taken": lambda c: c.upload_blob("small", b"data"),
    "a large name that is taken": lambda c: c.upload_blob("small", _LARGE),
    "an overwritten blob": lambda c: c.upload_blob("small", b"more", overwrite=True) and None,
    "metadata is replaced": lambda c: _shown(c.get_blob_client("small")),
    "blocks": lambda c: c.upload_blob("large", _LARGE) and None,
    "the properties of blocks": lambda c: _shown(c.get_blob_client("large")),
    "the list of blocks": lambda c: [each.size for each in c.get_blob_client("large").get_block_list()[0]],
    "content settings": lambda c: (
        c.upload_blob("set", _LARGE, content_settings=_SET) and _shown(c.get_blob_client("set"))
    ),
    "all of a blob": lambda c: _read(c, "large"),
    "a range": lambda c: _read(c, "large", 10, 20),
    "a range to the end": lambda c: _read(c, "large", 3000),
    "a range past the end": lambda c: _read(c, "large", 3000, 500),
    "a range after the end": lambda c: _read(c, "large", 5000, 10),
    "an empty blob": lambda c: c.upload_blob("empty", b"") and _read(c, "empty"),
    "a checked read": lambda c: _read(c, "large", validate_content=True),
    "a checked write": lambda c: c.upload_blob("checked", _LARGE, validate_content=True) and None,
    "a missing blob": lambda c: _read(c, "missing"),
    "properties of a missing blob": lambda c: _shown(c.get_blob_client("missing")),
    "deletion of a missing blob": lambda c: c.delete_blob("missing"),
    "a write for another etag": lambda c: c.upload_blob("small", b"x", overwrite=True, **_Not),
    "a write for the etag": _matching,
    "a read for another etag": lambda c: _read(c, "small", **_Not),
    "a write for an etag of a missing blob": lambda c: c.upload_blob("none", b"x", overwrite=True, **_Not),
    "a read of what has not changed": lambda c: _read(c, "small", if_modified_since=_LATER),
    "a staged block is no blob": lambda c: _shown(_staged(c)),
    "a staged block is not listed": lambda c: _listed(c, name_starts_with="staged"),
    "an id of another length": lambda c: c.get_blob_client("staged").stage_block("22222", b"two"),
    "a list with an unknown block": lambda c: c.get_blob_client("staged").commit_block_list([BlobBlock("9")]),
    "a list of blocks": lambda c: c.get_blob_client("staged").commit_block_list([BlobBlock("1")]) and None,
    "an empty list of blocks": lambda c: c.get_blob_client("void").commit_block_list([]) and _read(c, "void"),
    "an empty block": lambda c: c.get_blob_client("staged").stage_block("1", b"", length=0),
    "bad metadata": lambda c: c.upload_blob("bad", b"", metadata={"a-b": "1"}),
    "metadata": lambda c: c.get_blob_client("small").set_blob_metadata({"two": "2"}) and None,
    "names with odd characters": lambda c: [
        c.upload_blob(name, b"") and None for name in ("a b/c&d", "x<y>/ü%41", "dir/one", "dir/two/three")
    ],
    "a listing": lambda c: _listed(c, include=["metadata"]),
    "a listing in pages": lambda c: _listed(c, results_per_page=3),
    "a listing of a prefix": lambda c: _listed(c, name_starts_with="dir/"),
    "a hierarchy": lambda c: _walked(c, ""),
    "a hierarchy below": lambda c: _walked(c, "dir/"),
    "a deletion": lambda c: c.delete_blob("dir/one"),
    "a listing after a deletion": lambda c: _listed(c, name_starts_with="dir/"),
}
# Azurite takes these; the service does not (REST reference, "Put Block": the length must not be 0).
STRICTER = {"an empty block": (400, "InvalidHeaderValue")}


def _verdict(act: Act, container: ContainerClient) -> Any:
    try:
        return act(container)
    except HttpResponseError as error:
        headers: Any = getattr(error.response, "headers", {})
        return error.status_code, headers.get("x-ms-error-code")
    except AzureError as error:
        return type(error).__name__


def test_both_give_the_same_verdicts(own: ContainerClient, reference: ContainerClient) -> None:
    verdicts = {name: (_verdict(act, own), _verdict(act, reference)) for name, act in SCRIPT.items()}
    assert {name: pair[0] for name, pair in verdicts.items() if pair[0] != pair[1]} == STRICTER
