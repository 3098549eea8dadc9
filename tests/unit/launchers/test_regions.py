"""The clusters between which a run may move, and the run's specs for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.app import AppContext
from cloudrec.app.run.regions import clusters_for, refuse_unequal
from cloudrec.errors import CloudrecError, DataError, PreflightError, SpecError, UsageError
from cloudrec.home import Home
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.safe_path import UnsafeNameError
from cloudrec.spec.load import Loaded, load
from cloudrec.spec.models import ClusterSpec

STORAGE = {"cluster": "east", "region": "us-east-1", "bucket": "b"}


def context(folder: Path, *clusters: dict[str, Any]) -> AppContext:
    """A home whose journal has these managed clusters of AWS."""
    app = AppContext(home=Home(root=folder / "home"), environment={})
    for each in clusters:
        spec = ClusterSpec.model_validate({"provider": "aws", "managed": True, **each})
        app.journal.put_cluster(spec.title, "aws", spec.model_dump(mode="json"))
    return app


def wanted(folder: Path, regions: str, cluster: str | None = None) -> Loaded:
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("train", "regions"): ("--regions", regions),
        ("cluster", "name"): ("--cluster", cluster),
    }
    return load(None, environment={}, flags=flags, folder=folder)


EAST = {"name": "east", "region": "us-east-1"}
WEST = {"name": "west", "region": "us-west-2", "storage_of": "east", "storage": STORAGE}


@pytest.mark.parametrize(
    ("clusters", "asked", "error", "says"),
    [
        ([], ("us-east-1", None), PreflightError, "no cluster is up"),
        ([EAST], ("us-east-1", "west"), PreflightError, "no cluster 'west' is up"),
        ([EAST], ("us-east-1,us-east-1", None), SpecError, "names a region twice: us-east-1, us-east-1"),
        (
            [EAST],
            ("us-east-1,us-west-2", None),
            PreflightError,
            "no cluster in region 'us-west-2' uses the storage of cluster 'east'",
        ),
        (
            [EAST, WEST, {**EAST, "name": "alone"}],
            ("us-east-1,us-west-2", None),
            UsageError,
            "the clusters of 2 storages match: alone, east",
        ),
        (
            [EAST, WEST, {**WEST, "name": "wild"}],
            ("us-east-1,us-west-2", "west"),
            UsageError,
            "2 clusters in region 'us-west-2' use the storage of cluster 'east': west, wild",
        ),
        (
            [EAST, {**WEST, "managed": False}],
            ("us-east-1,us-west-2", "east"),
            SpecError,
            "cluster 'west' is not managed",
        ),
    ],
)
def test_clusters_that_cannot_hand_a_run_over_are_refused(
    tmp_path: Path,
    clusters: list[dict[str, Any]],
    asked: tuple[str, str | None],
    error: type[CloudrecError],
    says: str,
) -> None:
    with pytest.raises(error) as raised:
        clusters_for(context(tmp_path, *clusters), wanted(tmp_path, *asked))
    assert says in raised.value.message
    assert raised.value.remedy


def test_the_flag_names_a_cluster_of_another_provider_than_the_file(tmp_path: Path) -> None:
    app = context(tmp_path, EAST)
    file = tmp_path / "cloudrec.yaml"
    file.write_text("cluster: {provider: local}\n")
    named = load(None, environment={}, flags={("cluster", "name"): ("--cluster", "east")}, folder=tmp_path)
    assert [each.title for each in clusters_for(app, named)] == ["east"]
    unnamed = load(None, environment={}, flags={}, folder=tmp_path)
    with pytest.raises(PreflightError, match="no cluster of provider 'local' is up") as raised:
        clusters_for(app, unnamed)
    assert raised.value.remedy == (
        "name one that is up, --provider aws --cluster east; or make one: cloudrec up local"
    )
    file.write_text("cluster: {provider: local, name: east}\n")
    with pytest.raises(PreflightError, match="no cluster 'east' of provider 'local' is up"):
        clusters_for(app, load(None, environment={}, flags={}, folder=tmp_path))


def test_the_remedy_for_a_missing_region_makes_its_cluster(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as raised:
        clusters_for(context(tmp_path, EAST), wanted(tmp_path, "us-east-1,us-west-2"))
    assert raised.value.remedy == (
        "cloudrec up aws --cluster east-us-west-2 --region us-west-2 --storage-of east"
    )


def test_the_order_of_the_regions_is_that_of_the_clusters(tmp_path: Path) -> None:
    app = context(tmp_path, EAST, WEST)
    for regions, names in (
        ("us-east-1,us-west-2", ["east", "west"]),
        ("us-west-2,us-east-1", ["west", "east"]),
        ("us-west-2", ["west"]),
    ):
        for name in ("east", "west", None):  # each of them names the storage that they share
            assert [each.title for each in clusters_for(app, wanted(tmp_path, regions, name))] == names


def test_a_run_has_the_same_ranks_and_storage_in_each_cluster() -> None:
    first = RunSpec(name="r", cluster="east", nodes=2, nproc_per_node=8, storage="s3://b")
    refuse_unequal(first, replace(first, cluster="west"))
    with pytest.raises(SpecError, match=r"2 x 8 ranks in cluster 'east', and 2 x 4 in 'west'"):
        refuse_unequal(first, replace(first, cluster="west", nproc_per_node=4))
    with pytest.raises(SpecError, match=r"'west' stores results in s3://c, and 'east' in s3://b"):
        refuse_unequal(first, replace(first, cluster="west", storage="s3://c"))


def test_a_runs_folder_has_its_spec_for_each_cluster(tmp_path: Path) -> None:
    spec = RunSpec(name="r", cluster="east", elsewhere=("west",))
    west = replace(spec, cluster="west", elsewhere=("east",))
    folder = create_run(tmp_path / "runs", spec, [west])
    assert (folder.spec(), folder.spec_in("west")) == (spec, west)
    folder.write_spec(replace(spec, nodes=2), replace(west, nodes=2))
    assert (folder.spec().nodes, folder.spec_in("west").nodes) == (2, 2)
    (folder.path / "elsewhere" / "west.json").write_text("{")
    with pytest.raises(DataError, match=r"west\.json is damaged"):
        folder.spec_in("west")
    with pytest.raises(UnsafeNameError):  # a turn in the storage names the cluster
        folder.spec_in("../spec")


def test_regions_are_refused_where_clusters_cannot_share_a_storage(tmp_path: Path) -> None:
    app = context(tmp_path)
    spec = ClusterSpec(provider="local")
    app.journal.put_cluster(spec.title, "local", spec.model_dump(mode="json"))
    with pytest.raises(SpecError, match=r"provider 'local' cannot use the storage of another one") as raised:
        clusters_for(app, wanted(tmp_path, "us-east-1"))
    assert raised.value.remedy == "leave --regions out; clusters on aws, azure and gcp can"
