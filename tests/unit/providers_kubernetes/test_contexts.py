"""The user's kubeconfig is read and never changed; an ambiguous context must be given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudrec.errors import PreflightError, SpecError
from cloudrec.home import Home
from cloudrec.providers.base.kubeconfig import write
from cloudrec.providers.kubernetes.api import contexts, private
from cloudrec.providers.kubernetes.api.client import Clusters
from cloudrec.providers.kubernetes.settings import check
from cloudrec.spec.models import ClusterSpec


def kubeconfig(folder: Path, *names: str, current: str = "") -> Path:
    config: dict[str, Any] = {
        "clusters": [
            {"name": n, "cluster": {"server": f"https://{n}", "certificate-authority": "ca.pem"}}
            for n in names
        ],
        "users": [{"name": n, "user": {"client-key": "keys/key.pem"}} for n in names],
        "contexts": [{"name": n, "context": {"cluster": n, "user": n}} for n in names],
        "current-context": current,
    }
    folder.mkdir(exist_ok=True)
    path = folder / "config"
    path.write_text(json.dumps(config))
    return path


def spec(**settings: Any) -> ClusterSpec:
    return ClusterSpec(provider="kubernetes", name="c", settings={"storage": "s3://b/p", **settings})


def test_a_context_is_extracted_alone_with_absolute_paths(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "one", "two")
    found = contexts.read([path])["two"]
    assert [each["name"] for each in found["clusters"]] == ["two"]
    assert found["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "ca.pem")
    assert found["users"][0]["user"]["client-key"] == str(tmp_path / "keys/key.pem")
    assert found["current-context"] == "two"


def test_the_first_kubeconfig_with_a_context_takes_precedence(tmp_path: Path) -> None:
    first, second = kubeconfig(tmp_path / "a", "one"), kubeconfig(tmp_path / "b", "one", "two")
    files = contexts.paths(None, {"KUBECONFIG": f"{first}:{second}"})
    found = contexts.read(files)
    assert set(found) == {"one", "two"}
    assert found["one"]["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "a" / "ca.pem")


@pytest.mark.parametrize(
    ("names", "wanted", "said"),
    [
        ((), None, "no context of a cluster"),
        (("one", "two"), None, "2 contexts: one, two"),
        (("one", "two"), "tow", "no context 'tow'"),
    ],
)
def test_an_ambiguous_context_must_be_given(
    tmp_path: Path, names: tuple[str, ...], wanted: str | None, said: str
) -> None:
    clusters = Clusters(Home(root=tmp_path / "home"), {"KUBECONFIG": str(kubeconfig(tmp_path, *names))})
    with pytest.raises(PreflightError, match=said):
        clusters.place("c", wanted)


def test_the_adopted_context_is_used_after_changes_of_the_kubeconfig(
    tmp_path: Path,
) -> None:
    home, path = Home(root=tmp_path / "home"), kubeconfig(tmp_path, "one", "two", current="two")
    config = contexts.read([path])["one"]
    write(
        private.path_of(home, "c"),
        {**config, "extensions": [{"name": private._OURS, "extension": {"tags": {}}}]},
    )
    assert Clusters(home, {"KUBECONFIG": str(path)}).place("c", None).context == "one"
    kubeconfig(tmp_path, "two")  # the user removes it; the private copy still works
    assert Clusters(home, {"KUBECONFIG": str(path)}).place("c", None).config == config


def test_an_invalid_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for text in ("clusters: 3", "- a", "{"):
        path.write_text(text)
        with pytest.raises(PreflightError, match=str(path)):
            contexts.read([path])


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (ClusterSpec(provider="kubernetes"), "storage is missing"),
        (spec(storage="/data"), "is not a storage URI"),
        (spec(node_selector={"a b": "c"}), "no label"),
        (spec(namespace="Not-A-Label"), "namespace"),
        (spec().model_copy(update={"budget_usd": 5.0}), "the price of the nodes is not known"),
        (spec().model_copy(update={"zones": ("a",)}), "makes no nodes"),
    ],
)
def test_unsupported_options_of_an_adopted_cluster_are_refused(cluster: ClusterSpec, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        check(cluster)
