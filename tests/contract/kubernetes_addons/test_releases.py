"""Upstream releases are used only with the expected hash, and download errors are reported."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.addons import upstream
from cloudrec.kubernetes.addons.table import Addon, Release
from tests.contract.kubernetes_addons.support import Releases, archive_of, operator, text_of

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "operator"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "o", "image": "quay.io:443/an/operator:nightly"}]}}
    },
}


def addon(**release: Any) -> Addon:
    return Addon(
        name="operator",
        version="v1",
        date="2026-11-20",
        source="a test",
        purpose="a test",
        release=Release(**release),
    )


def test_a_manifest_with_the_expected_hash_is_parsed(releases: Releases) -> None:
    url, sha256 = releases.put("/right.yaml", b"---\n" + text_of(operator("1")))
    objects, found = upstream.objects_of(addon(manifest=url, sha256=sha256))
    assert objects == operator("1")
    assert found == sha256


def test_a_release_without_a_hash_is_refused_with_its_hash(releases: Releases) -> None:
    url, sha256 = releases.put("/unknown.yaml", text_of(operator("1")))
    with pytest.raises(
        PreflightError, match=f"is unknown; the downloaded file has sha256 {sha256}"
    ) as refused:
        upstream.objects_of(addon(manifest=url))
    assert f"--sha256 {sha256}" in str(refused.value.remedy)
    objects, _ = upstream.objects_of(addon(manifest=url), sha256=f"sha256:{sha256.upper()}")
    assert objects == operator("1")


@pytest.mark.parametrize("wanted", ["here", "given"])
def test_a_wrong_hash_installs_nothing(releases: Releases, wanted: str) -> None:
    url, sha256 = releases.put("/changed.yaml", text_of(operator("1")))
    right, wrong = addon(manifest=url, sha256="0" * 64), "1" * 64
    with pytest.raises(PreflightError, match=f"has sha256 {sha256}, and [01]+ was expected"):
        upstream.objects_of(right, sha256="" if wanted == "here" else wrong)


def test_a_missing_file_is_reported_with_its_address(releases: Releases) -> None:
    url, _ = releases.put("/there.yaml", b"")
    with pytest.raises(PreflightError, match=r"/gone\.yaml: 404"):
        upstream.fetch(url.replace("there", "gone"))


def test_a_network_failure_is_reported_with_its_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x.yaml"
        with pytest.raises(PreflightError, match=r"cannot be fetched: .*refused") as refused:
            upstream.fetch(url)
    assert "HTTPS_PROXY" in str(refused.value.remedy)


@pytest.mark.parametrize("url", ["http://example.org/x.yaml", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_only_https_is_accepted(url: str) -> None:
    with pytest.raises(PreflightError, match="is not an https URL"):
        upstream.fetch(url)


@pytest.mark.parametrize("content", [b"a: [", b"- 1\n- 2\n", b"kind: Service\n", b"\xff\xfe"])
def test_a_file_that_is_not_a_manifest_is_refused(releases: Releases, content: bytes) -> None:
    url, sha256 = releases.put("/nonsense.yaml", content)
    with pytest.raises(PreflightError, match="has no readable objects"):
        upstream.objects_of(addon(manifest=url, sha256=sha256))


def test_files_of_an_archive_are_read_in_order_with_pinned_tags(releases: Releases) -> None:
    namespace = operator("1")[3]
    content = archive_of({"b.yaml": text_of([namespace]), "a.yaml": text_of([DEPLOYMENT])})
    url, sha256 = releases.put("/files.tar.gz", content)
    release = addon(
        archive=url, sha256=sha256, files=("a.yaml", "b.yaml"), images={"quay.io:443/an/operator": "v1"}
    )
    deployment, last = upstream.objects_of(release)[0]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "quay.io:443/an/operator:v1"
    assert last == namespace
    with pytest.raises(PreflightError, match=r"no file c\.yaml"):
        upstream.objects_of(addon(archive=url, sha256=sha256, files=("c.yaml",)))


def test_a_damaged_archive_is_refused(releases: Releases) -> None:
    whole = archive_of({"a.yaml": text_of([DEPLOYMENT])})
    for content in (b"no archive", whole[: len(whole) // 2]):
        url, sha256 = releases.put("/damaged.tar.gz", content)
        with pytest.raises(PreflightError, match="has no readable objects"):
            upstream.objects_of(addon(archive=url, sha256=sha256, files=("a.yaml",)))


def kustomize(folder: Path, script: str) -> str:
    """Write a script named kustomize, for machines without one; return its folder."""
    tool = folder / "kustomize"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    return str(folder)


def test_a_shipped_kustomization_replaces_that_of_the_archive(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", kustomize(tmp_path, 'cat "$2/kustomization.yaml" >&2; cat "$2/../base/a.yaml"'), prepend=":"
    )
    content = archive_of({"base/a.yaml": text_of([DEPLOYMENT])})
    url, sha256 = releases.put("/built.tar.gz", content)
    made = addon(archive=url, sha256=sha256, folder="ours", kustomization={"resources": ["../base"]})
    assert upstream.objects_of(made)[0] == [DEPLOYMENT]
    missing = addon(archive=url, sha256=sha256, folder="theirs")
    with pytest.raises(PreflightError, match="no folder theirs"):
        upstream.objects_of(missing)


def test_a_kustomize_failure_is_reported_with_its_error_output(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", kustomize(tmp_path, "echo 'no such base' >&2; exit 1"), prepend=":")
    url, sha256 = releases.put("/broken.tar.gz", archive_of({"base/a.yaml": b""}))
    with pytest.raises(PreflightError, match=r"cannot build base of .*: no such base"):
        upstream.objects_of(addon(archive=url, sha256=sha256, folder="base"))


def test_missing_kustomize_and_kubectl_are_reported(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url, sha256 = releases.put("/toolless.tar.gz", archive_of({"base/a.yaml": b""}))
    with pytest.raises(PreflightError, match="neither kustomize nor kubectl is installed"):
        upstream.objects_of(addon(archive=url, sha256=sha256, folder="base"))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_builds_a_kustomization_without_kustomize(releases: Releases) -> None:
    own = {
        "namespace": "a-place",
        "resources": ["base/a.yaml"],
        "images": [{"name": "quay.io:443/an/operator", "newTag": "v2"}],
    }
    url, sha256 = releases.put(
        "/kubectl.tar.gz", archive_of({"base/a.yaml": yaml.safe_dump(DEPLOYMENT).encode()})
    )
    (made,), _ = upstream.objects_of(addon(archive=url, sha256=sha256, folder=".", kustomization=own))
    assert made["metadata"]["namespace"] == "a-place"
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "quay.io:443/an/operator:v2"
