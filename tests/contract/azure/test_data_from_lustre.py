"""`train` imports its dataset into the cluster's Lustre file system, and its pods read it there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudrec.launchers.base.results_store import open_place
from cloudrec_sandbox.azure.services.authorization.principals import STORAGE_CACHE
from tests.conformance.support_clouds import Site, stand_in, until
from tests.contract.test_dataset_tiers import TITLE, cloudrec, manifest

_TRIES = 20
_IMAGE = f"r/i@sha256:{'0' * 64}"  # in no registry: the launch ends after the import


@pytest.mark.slow
def test_train_imports_the_dataset_and_its_pods_read_it_from_lustre(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in("azure") as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        server.control(processes=False)
        for variable, value in cloud.env.items():
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        del cloud.env["CLOUDREC_CLUSTER_ADDONS"]
        monkeypatch.delenv("CLOUDREC_CLUSTER_ADDONS", raising=False)
        site = Site(cloud, tmp_path)
        settings = {"lustre_tib": 8, "lustre_importer": STORAGE_CACHE}
        site.cluster = site.cluster.model_copy(update={"settings": settings})
        site.up()
        uri = f"{site.application.provider('azure').access(site.cluster).storage}/data/criteo"
        open_place(uri).write("dataset.json", manifest(tmp_path / "criteo", 660.0))
        command = ("train", "--cluster", TITLE, "--image", _IMAGE, "--dataset", uri, "--data-tier", "lustre")
        tried = []

        def is_planned() -> bool:  # the nodes join some time after `up`
            tried.append(cloudrec(site, *command, "--dry-run", "-o", "json"))
            assert len(tried) < _TRIES, tried[-1].stderr
            return tried[-1].returncode == 0 or "nodes" not in tried[-1].stderr

        until(is_planned, "nodes for the run")
        plan = json.loads(tried[-1].stdout)
        assert plan["data"]["tier"] == "lustre", plan
        assert "--dataset_path=/mnt/lustre/data/criteo" in json.dumps(plan)
        (imported,) = cloud.control()["lustre_imported"].values()
        assert imported == ["/"]  # a plan imports nothing
        done = cloudrec(site, *command, "--detach", "--yes")
        said = done.stderr
        assert said.index(f"importing {uri} into the Lustre file system") < said.index(
            "may not pull the image"
        )
        (imported,) = cloud.control()["lustre_imported"].values()
        assert imported == ["/", "/data/criteo"]
