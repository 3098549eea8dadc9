"""The bucket of an adopted cluster is checked before anything is made."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest

from cloudrec.app.addons import examine
from cloudrec.errors import PreflightError
from cloudrec.process.ports import free_port
from cloudrec.providers.kubernetes.storage.bucket import probe
from cloudrec_contract.objectstore.base import UploadFile
from cloudrec_contract.objectstore.errors import AccessDeniedError, ObjectExistsError
from tests.conformance.support_clouds import Site
from tests.contract.kubernetes_adopted.test_adopted import given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager


def test_up_writes_an_object_and_leaves_none(site: Site, bucket: str, s3_endpoint: str) -> None:
    given(site, storage=bucket, probe_storage=True)
    site.up()
    (finding,) = [each for each in examine(site.application, site.cluster, {}) if each.check == "storage"]
    assert (finding.ok, finding.found) == (True, f"{bucket}: an object was created, read and removed")
    with urllib.request.urlopen(f"{s3_endpoint}/bucket?list-type=2") as listing:  # noqa: S310 - on loopback
        assert b"<Key>" not in listing.read()
    site.down()


def test_up_refuses_a_bucket_that_does_not_exist(site: Site, bucket: str) -> None:
    given(site, storage="s3://absent/prefix", probe_storage=True)
    with pytest.raises(
        PreflightError, match=r"storage: s3://absent/prefix: there is no such bucket"
    ) as caught:
        site.up()
    assert "create it, or name one that exists" in (caught.value.remedy or "")
    assert site.cloud.state() == []
    assert bucket


def test_up_refuses_a_store_that_does_not_answer_and_names_the_way_around(
    site: Site, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")
    given(site, storage=bucket, probe_storage=True)
    with pytest.raises(PreflightError, match=r"storage: .*the store did not complete the request") as caught:
        site.up()
    assert "--set cluster.settings.probe_storage=false" in (caught.value.remedy or "")
    assert site.cloud.state() == []
    given(site, probe_storage=False)
    site.up()
    site.down()


class Memory:
    """A store in memory, which the tests make worse."""

    uri = "s3://bucket/prefix"

    def __init__(self, *, conditional: bool = True, denies: str = "") -> None:
        self.objects: dict[str, bytes] = {}
        self.is_conditional, self.denied = conditional, denies

    def _ask(self, action: str) -> None:
        if action == self.denied:
            raise AccessDeniedError(self.uri, f"{action} is not allowed")

    def check(self) -> None:
        self._ask("list")

    def create(self, name: str, data: bytes) -> None:
        self._ask("write")
        if self.is_conditional and self.objects.get(name, data) != data:
            raise ObjectExistsError(name, "it exists")
        self.objects[name] = data

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data

    def write(self, name: str) -> AbstractContextManager[BinaryIO]:
        raise NotImplementedError(name)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self._ask("read")
        return self.objects[name][start : None if length is None else start + length]

    def download(self, name: str, target: Path) -> None:
        raise NotImplementedError(name, target)

    def upload(self, name: str, file: UploadFile, sent: Callable[[int], None]) -> None:
        raise NotImplementedError(name, file, sent)

    def holds(self, name: str, file: UploadFile) -> bool:
        raise NotImplementedError(name, file)

    def local_file(self, name: str) -> Path | None:
        raise NotImplementedError(name)

    def sizes(self, prefix: str = "") -> dict[str, int]:
        return {name: len(data) for name, data in self.objects.items() if name.startswith(prefix)}

    def children(self, folder: str = "") -> dict[str, int]:
        raise NotImplementedError(folder)

    def remove(self, names: Iterable[str]) -> None:
        self._ask("delete")
        for name in names:
            self.objects.pop(name, None)

    def tidy(self) -> None:
        pass


@pytest.mark.parametrize("action", ["write", "read", "delete"])
def test_a_store_that_denies_one_action_is_named_with_what_is_needed(action: str) -> None:
    finding = probe(Memory(denies=action))
    assert (finding.ok, finding.blocks) == (False, True)
    assert finding.found == f"s3://bucket/prefix: refused ({action} is not allowed)"
    assert "list, read, write and delete" in finding.remedy


def test_a_store_that_ignores_conditions_is_refused() -> None:
    store = Memory(conditional=False)
    finding = probe(store)
    assert not finding.ok
    assert "it ignores If-None-Match" in finding.found
    assert store.objects == {}
