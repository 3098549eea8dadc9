"""What upstream publishes is used only when its hash is the right one, and what cannot be had is told."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.cluster import addons_release
from cloudrec.cluster.addons_table import Addon, Release
from cloudrec.errors import PreflightError
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


def test_a_manifest_of_the_right_hash_gives_its_objects(releases: Releases) -> None:
    url, sha256 = releases.put("/right.yaml", b"---\n" + text_of(operator("1")))
    objects, found = addons_release.objects_of(addon(manifest=url, sha256=sha256))
    assert objects == operator("1")
    assert found == sha256


def test_a_hash_that_nobody_knows_must_be_given_and_is_told(releases: Releases) -> None:
    url, sha256 = releases.put("/unknown.yaml", text_of(operator("1")))
    with pytest.raises(
        PreflightError, match=f"nobody here knows .* what came has sha256 {sha256}"
    ) as refused:
        addons_release.objects_of(addon(manifest=url))
    assert f"--sha256 {sha256}" in str(refused.value.remedy)
    objects, _ = addons_release.objects_of(addon(manifest=url), sha256=f"sha256:{sha256.upper()}")
    assert objects == operator("1")


@pytest.mark.parametrize("wanted", ["here", "given"])
def test_another_hash_installs_nothing(releases: Releases, wanted: str) -> None:
    url, sha256 = releases.put("/changed.yaml", text_of(operator("1")))
    right, wrong = addon(manifest=url, sha256="0" * 64), "1" * 64
    with pytest.raises(PreflightError, match=f"has sha256 {sha256}, and [01]+ was expected"):
        addons_release.objects_of(right, sha256="" if wanted == "here" else wrong)


def test_what_is_not_there_is_told_with_its_address(releases: Releases) -> None:
    url, _ = releases.put("/there.yaml", b"")
    with pytest.raises(PreflightError, match=r"/gone\.yaml: 404"):
        addons_release.fetch(url.replace("there", "gone"))


def test_no_network_is_told_with_its_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x.yaml"
        with pytest.raises(PreflightError, match=r"cannot be fetched: .*refused") as refused:
            addons_release.fetch(url)
    assert "HTTPS_PROXY" in str(refused.value.remedy)


@pytest.mark.parametrize("url", ["http://example.org/x.yaml", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_only_https_is_trusted(url: str) -> None:
    with pytest.raises(PreflightError, match="is not an https address"):
        addons_release.fetch(url)


@pytest.mark.parametrize("content", [b"a: [", b"- 1\n- 2\n", b"kind: Service\n", b"\xff\xfe"])
def test_what_is_no_manifest_is_refused(releases: Releases, content: bytes) -> None:
    url, sha256 = releases.put("/nonsense.yaml", content)
    with pytest.raises(PreflightError, match="does not hold what it should"):
        addons_release.objects_of(addon(manifest=url, sha256=sha256))


def test_files_of_an_archive_are_taken_in_their_order_with_tags_pinned(releases: Releases) -> None:
    namespace = operator("1")[3]
    content = archive_of({"b.yaml": text_of([namespace]), "a.yaml": text_of([DEPLOYMENT])})
    url, sha256 = releases.put("/files.tar.gz", content)
    release = addon(
        archive=url, sha256=sha256, files=("a.yaml", "b.yaml"), images={"quay.io:443/an/operator": "v1"}
    )
    deployment, last = addons_release.objects_of(release)[0]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "quay.io:443/an/operator:v1"
    assert last == namespace
    with pytest.raises(PreflightError, match=r"no file c\.yaml"):
        addons_release.objects_of(addon(archive=url, sha256=sha256, files=("c.yaml",)))


def test_a_damaged_archive_is_refused(releases: Releases) -> None:
    whole = archive_of({"a.yaml": text_of([DEPLOYMENT])})
    for content in (b"no archive", whole[: len(whole) // 2]):
        url, sha256 = releases.put("/damaged.tar.gz", content)
        with pytest.raises(PreflightError, match="does not hold what it should"):
            addons_release.objects_of(addon(archive=url, sha256=sha256, files=("a.yaml",)))


def kustomize(folder: Path, script: str) -> str:
    """A tool of that name, for machines without one; return where it is."""
    tool = folder / "kustomize"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    return str(folder)


def test_a_kustomization_of_ours_is_built_in_the_archives_place(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", kustomize(tmp_path, 'cat "$2/kustomization.yaml" >&2; cat "$2/../base/a.yaml"'), prepend=":"
    )
    content = archive_of({"base/a.yaml": text_of([DEPLOYMENT])})
    url, sha256 = releases.put("/built.tar.gz", content)
    made = addon(archive=url, sha256=sha256, folder="ours", kustomization={"resources": ["../base"]})
    assert addons_release.objects_of(made)[0] == [DEPLOYMENT]
    missing = addon(archive=url, sha256=sha256, folder="theirs")
    with pytest.raises(PreflightError, match="no folder theirs"):
        addons_release.objects_of(missing)


def test_a_kustomization_that_cannot_be_built_is_told_in_kustomizes_words(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", kustomize(tmp_path, "echo 'no such base' >&2; exit 1"), prepend=":")
    url, sha256 = releases.put("/broken.tar.gz", archive_of({"base/a.yaml": b""}))
    with pytest.raises(PreflightError, match=r"cannot build base of .*: no such base"):
        addons_release.objects_of(addon(archive=url, sha256=sha256, folder="base"))


def test_without_a_tool_that_builds_it_is_told_which_to_install(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url, sha256 = releases.put("/toolless.tar.gz", archive_of({"base/a.yaml": b""}))
    with pytest.raises(PreflightError, match="neither kustomize nor kubectl is installed"):
        addons_release.objects_of(addon(archive=url, sha256=sha256, folder="base"))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_builds_what_kustomize_would(releases: Releases) -> None:
    own = {
        "namespace": "a-place",
        "resources": ["base/a.yaml"],
        "images": [{"name": "quay.io:443/an/operator", "newTag": "v2"}],
    }
    url, sha256 = releases.put(
        "/kubectl.tar.gz", archive_of({"base/a.yaml": yaml.safe_dump(DEPLOYMENT).encode()})
    )
    (made,), _ = addons_release.objects_of(addon(archive=url, sha256=sha256, folder=".", kustomization=own))
    assert made["metadata"]["namespace"] == "a-place"
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "quay.io:443/an/operator:v2"
