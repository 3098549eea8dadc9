"""The image of pods if none was pushed, what they install, and the dataset of a run that names none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.app.context import AppContext
from cloudrec.app.run.pushed_data import content_of, last, note, with_dataset
from cloudrec.data.format.encoding import of_dataset
from cloudrec.data.format.manifest import load
from cloudrec.data.prepare.prepare import prepare
from cloudrec.errors import DataError, PreflightError
from cloudrec.home import Home
from cloudrec.image.bases import PYTHON, base_for, setup_for
from cloudrec.image.code import current
from cloudrec.kubernetes.client.target import ClusterTarget, PodSetup
from cloudrec.kubernetes.health.causes import pod_cause
from cloudrec.launchers import launcher
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.providers.base.facts import PLAIN_IMAGE, all_facts
from cloudrec_contract.features import parse
from cloudrec_sandbox.kubernetes.kubelet.node.images import is_base


def target(fabric: str) -> ClusterTarget:
    return ClusterTarget(kubeconfig="k", context="c", namespace="n", service_account="s", fabric=fabric)


def base(fabric: str, *, wanted: str | None = None, allow_tcp: bool = False) -> str:
    return base_for(target(fabric), "mine", wanted=wanted, allow_tcp=allow_tcp)


def test_nodes_without_a_fabric_or_with_its_libraries_run_python_by_digest() -> None:
    assert "@sha256:" in PYTHON
    assert [base(fabric) for fabric in ("tcp", "none", "tcpx", "tcpxo")] == [PYTHON] * 4


def test_nodes_with_a_fabric_run_a_published_image_with_its_libraries() -> None:
    assert base("efa").startswith("public.ecr.aws/deep-learning-containers/pytorch:")
    assert base("efa", allow_tcp=True) == base("efa")
    assert base("efa", wanted="mirror.example/python@sha256:0") == "mirror.example/python@sha256:0"


def test_a_fabric_without_a_known_image_is_refused_rather_than_trained_over_tcp() -> None:
    with pytest.raises(
        PreflightError, match="use infiniband, and cloudrec knows no published image"
    ) as caught:
        base("infiniband")
    assert "cloudrec image build --fabric ib && cloudrec image push --cluster mine" in str(
        caught.value.remedy
    )
    assert base("infiniband", allow_tcp=True) == PYTHON


def test_the_stand_in_has_every_base_image() -> None:
    named = {fabric.base_image for facts in all_facts() for fabric in facts.fabrics} - {"", PLAIN_IMAGE}
    assert all(is_base(image) for image in (PYTHON, *named))
    assert not is_base("registry.example/cloudrec@sha256:" + "0" * 64)


def test_pods_install_the_clients_of_the_stores_that_they_use() -> None:
    setup = setup_for(("base", ""), uris=("s3://bucket", "", "gs://data/x"), extra="azure", index=None)
    assert setup == PodSetup(digest=current().digest, extras=("base", "aws", "gcp", "azure"))


def test_a_run_keeps_what_its_pods_install() -> None:
    setup = PodSetup(digest="0" * 64, extras=("base", "aws"), index="https://index.example/simple")
    spec = RunSpec(name="r", image=PYTHON, setup=setup)
    assert RunSpec.from_json(spec.to_json()) == spec


def with_pushed(home: Path, spec: RunSpec, said: list[str]) -> RunSpec:
    app = AppContext(home=Home(root=home), environment={}, report=said.append)
    return with_dataset(app, spec, launcher("torchrun"))


def test_a_run_without_a_dataset_takes_the_one_that_was_pushed_last(tmp_path: Path) -> None:
    storage, said = str(tmp_path / "storage"), list[str]()
    spec = RunSpec(name="r", cluster="mine", launcher="torchrun", storage=storage)
    with pytest.raises(DataError, match="names no dataset, and none was pushed to cluster 'mine'") as caught:
        with_pushed(tmp_path, spec, said)
    assert "cloudrec data push data/prepared --cluster mine" in str(caught.value.remedy)
    note(storage, "s3://bucket/data/old", "")
    note(storage, "s3://bucket/data/new", "")
    assert with_pushed(tmp_path, spec, said).trainer.dataset_path == "s3://bucket/data/new"
    assert said[0].startswith("dataset s3://bucket/data/new (the one pushed last, at 2")


@pytest.mark.parametrize(
    "named",
    [
        {"trainer_config": {"dataset_path": "s3://bucket/own"}},
        {"trainer_flags": ("--dataset-path=s3://bucket/own",)},
        {"trainer_flags": ("--dataset", "trainer.data.formats.synthetic:made_up")},
        {"trainer_command": ("python", "train.py")},
    ],
)
def test_a_run_with_a_dataset_keeps_it(tmp_path: Path, named: dict[str, Any]) -> None:
    storage = str(tmp_path / "storage")
    note(storage, "s3://bucket/data/new", "")
    spec = replace(RunSpec(name="r", launcher="torchrun", storage=storage), **named)
    assert with_pushed(tmp_path, spec, []) == spec


def test_a_run_with_the_folder_that_was_pushed_takes_its_copy(tmp_path: Path) -> None:
    folder, storage, said = tmp_path / "prepared", str(tmp_path / "storage"), list[str]()
    (tmp_path / "rows.csv").write_text("".join(["y,a\n", *(f"{row % 2},{row % 3}\n" for row in range(60))]))
    schema = parse({"label": "y", "dense": [], "sparse": [{"name": "a", "min_frequency": 1}]})
    prepare(str(tmp_path / "rows.csv"), folder, schema=schema)
    spec = RunSpec(
        name="r", launcher="torchrun", storage=storage, trainer_config={"dataset_path": str(folder)}
    )
    assert with_pushed(tmp_path, spec, said) == spec
    content = load(folder)
    encoding = of_dataset(content, folder)
    assert encoding is not None
    note(storage, "s3://bucket/data/old", content_of(content["digest"], "of another encoding"))
    assert with_pushed(tmp_path, spec, said) == spec
    note(storage, "s3://bucket/data/prepared", content_of(content["digest"], encoding.digest))
    assert with_pushed(tmp_path, spec, said).trainer.dataset_path == "s3://bucket/data/prepared"
    assert said[0].startswith(f"dataset s3://bucket/data/prepared (the copy of {folder}, pushed at 2")


def test_a_damaged_note_of_the_pushed_dataset_counts_as_none(tmp_path: Path) -> None:
    note(str(tmp_path), "s3://bucket/data/new", "")
    (tmp_path / "data" / "pushed.json").write_text("[]")
    assert last(str(tmp_path)) is None


def test_a_pod_that_could_not_be_prepared_names_the_reason() -> None:
    said = "try 3 of 4 failed\nerror: the packages cannot be installed: no route to host"
    ended = {"terminated": {"exitCode": 69, "message": said}}
    pod = {
        "metadata": {"name": "r-0"},
        "status": {"phase": "Failed", "initContainerStatuses": [{"name": "setup", "state": ended}]},
    }
    cause = pod_cause(pod)
    assert cause is not None
    assert cause.text == "the pod could not be prepared: the packages cannot be installed: no route to host"
    assert "cluster.package_index" in cause.remedy
