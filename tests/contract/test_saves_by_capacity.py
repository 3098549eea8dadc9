"""How often a run saves by default depends on whether its nodes may be taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app.run.launch import PreparedRun
from cloudrec.spec.load import load
from tests.conformance.support_clouds import Cloud, Site, stand_in

WEEK = 168.0


def _planned(site: Site, folder: Path, **trainer: Any) -> dict[str, Any]:
    """Return the trainer's configuration of a run on the site's cluster."""
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("cluster", "provider"): ("PROVIDER", site.cloud.name),
        ("train", "image"): ("--image", "registry.example/cloudrec@sha256:" + "0" * 64),
        ("train", "settings", "wait_for_nodes"): ("--set", True),  # device plugins are not installed
        ("trainer", "dataset_path"): ("--dataset", "/mnt/lustre/data"),
        **{("trainer", name): ("--set", value) for name, value in trainer.items()},
    }
    prepared: list[PreparedRun] = []

    def decline(launch: PreparedRun) -> bool:
        prepared.append(launch)
        return False

    loaded = load(None, environment={}, flags=flags, folder=folder)
    assert app.train(site.application, loaded, (), decide=decline) is None
    (launch,) = prepared
    return dict(launch.spec.trainer_config)


@pytest.mark.parametrize(
    ("capacity", "hours"), [("on-demand", WEEK), ("spot", None), ("spot-first", None)], ids=str
)
def test_the_time_that_a_machine_is_expected_to_run_follows_from_the_capacity_type(
    capacity: str, hours: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in("azure") as cloud:
        _linked(server, cloud, monkeypatch)
        site = Site(cloud, tmp_path)
        site.cluster = site.cluster.model_copy(update={"capacity": capacity})
        site.up()
        planned = _planned(site, tmp_path)
        assert planned.get("machine_uptime_hours") == hours
        assert "checkpoint_interval" not in planned  # the trainer's default: auto
        assert _planned(site, tmp_path, machine_uptime_hours=5)["machine_uptime_hours"] == 5
        site.down()


def _linked(server: Cloud, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
    for variable, value in cloud.env.items():  # for the kubeconfig's token command
        monkeypatch.setenv(variable, value)
    cloud.reset()
    cloud.control(kubernetes=server._announcement)
