"""Files that rot after a save are found while the run trains, and the next save does not build upon them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import distributed

from cloudrec.observe.metrics import latest_metrics
from tests.trainer.support_clouds import CLOUDS, CloudPlace
from tests.trainer.support_damage import DAMAGES_OF_A_FILE, flip
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_layers import ALONE, FINGERPRINT, INCREMENTAL, Model
from tests.trainer.support_ranks import Place, RankPool
from tests.trainer.support_runs import run_here
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.load import scrubber
from trainer.checkpoint.store.base import open_store
from trainer.loop import saving
from trainer.loop.session.checkpoints import RunCheckpoints
from trainer.loop.session.course import Course

WATCHED = replace(INCREMENTAL, scrub_bytes_per_s=1e9, scrub_again_s=0.05)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubber, "_POLL_S", 0.02)


@pytest.mark.parametrize("damage", DAMAGES_OF_A_FILE)
@pytest.mark.parametrize("file", ["bin", "json"])
def test_rot_is_found_and_the_next_save_begins_a_new_chain(tmp_path: Path, file: str, damage: str) -> None:
    model = Model(ALONE)
    with Checkpointer(str(tmp_path), keep=2, rank=0, world_size=1, options=WATCHED) as checkpointer:
        for step in (1, 2, 3):
            model.train(step)
            checkpointer.save(step, model.state, {}, FINGERPRINT)
        assert checkpointer.take_damage() == []
        (rotten,) = tmp_path.glob(f"step-00000003/rank-*.{file}")
        DAMAGES_OF_A_FILE[damage](rotten)
        reports: list[str] = []
        until = time.monotonic() + 20
        while not reports and time.monotonic() < until:
            time.sleep(0.02)
            reports = checkpointer.take_damage()
        assert rotten.name in reports[0]
        assert len(reports) == 1
        assert len([*tmp_path.glob("step-*/commit-*.json")]) > 1  # nothing is removed before the next save
        model.train(4)
        report = checkpointer.save(4, model.state, {}, FINGERPRINT)
        assert report is not None
        assert (report.kind, 3 in checkpointer.steps()) == ("full", False)
        assert len(checkpointer.steps()) > 1  # a sound one of the chain before is kept
        model.train(5)
        after = checkpointer.save(5, model.state, {}, FINGERPRINT)
        assert after is not None
        assert after.kind == "differential"
        time.sleep(0.2)
        assert checkpointer.take_damage() == []
    with Checkpointer(str(tmp_path), keep=2, rank=0, world_size=1) as checkpointer:
        assert checkpointer.newest() == 5


def _until_reported(checkpointer: Checkpointer) -> list[str]:
    until = time.monotonic() + 20
    while not (reports := checkpointer.take_damage()) and time.monotonic() < until:
        time.sleep(0.02)
    return reports


def _rot_of_rank_1(place: Place, folder: str) -> tuple[list[str], str, list[int]]:
    """Damage a file of rank 1; return the reports, the kind of the next save and the steps left."""
    scrubber._POLL_S = 0.02
    model, reports = Model(place), list[str]()
    with Checkpointer(
        folder, keep=2, rank=place.rank, world_size=place.world_size, group=place.group, options=WATCHED
    ) as writer:
        for step in (1, 2, 3):
            model.train(step)
            writer.save(step, model.state, {}, FINGERPRINT)
        if place.rank == 0:
            (rotten,) = Path(folder).glob("step-00000003/rank-00001.*.bin")
            flip(rotten, 200)  # in a table's weights; between the parts there is padding
            reports = _until_reported(writer)
        distributed.barrier(place.group)
        model.train(4)
        report = writer.save(4, model.state, {}, FINGERPRINT)
        assert report is not None
        return reports, report.kind, [*writer.steps()]


def test_rot_of_another_ranks_file_begins_a_new_chain_on_all_ranks(ranks: RankPool, tmp_path: Path) -> None:
    (reports, *first), (none, *second) = ranks.run(2, _rot_of_rank_1, str(tmp_path))
    assert "rank-00001" in reports[0]
    assert none == []
    assert first == second
    assert first[0] == "full"
    assert 3 not in first[1]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_rot_in_a_bucket_is_found(enter_cloud: Callable[[str], CloudPlace], cloud: str) -> None:
    uri = enter_cloud(cloud).new_uri()
    model = Model(ALONE)
    with Checkpointer(uri, keep=2, rank=0, world_size=1, options=WATCHED) as writer:
        for step in (1, 2, 3):
            model.train(step)
            writer.save(step, model.state, {}, FINGERPRINT)
        objects = open_store(uri).objects
        (rotten,) = (each for each in objects.sizes("step-00000003/") if each.endswith(".bin"))
        content = bytearray(objects.read(rotten))
        content[len(content) // 2] ^= 1
        objects.put(rotten, bytes(content))
        assert rotten in _until_reported(writer)[0]
        model.train(4)
        report = writer.save(4, model.state, {}, FINGERPRINT)
        assert report is not None
        assert report.kind == "full"


def test_the_patrol_reads_at_its_rate(tmp_path: Path) -> None:
    options = replace(WATCHED, scrub_bytes_per_s=20_000.0)
    model = Model(ALONE)
    with Checkpointer(str(tmp_path), keep=2, rank=0, world_size=1, options=options) as checkpointer:
        checkpointer.save(1, model.state, {}, FINGERPRINT)
        time.sleep(0.5)
        watching = checkpointer._scrubber
        assert watching is not None
        size = sum(each.stat().st_size for each in tmp_path.glob("step-*/*.bin"))
        assert 0 < watching.read_bytes <= max(20_000, size)


def test_a_run_reports_rot_and_ends_with_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tmp_path / "small"
    write_dataset(dataset, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4, num_embeddings=4000)
    exact = {"deterministic": True, "num_epochs": 2, "lr_decay": "none", "checkpoint_interval": 5}
    whole = run_here(dataset, tmp_path / "whole", **exact, num_iterations=40).summary
    options_of = saving.saving_options

    def rotting(*given: object) -> object:
        return replace(options_of(*given), scrub_bytes_per_s=1e9, scrub_again_s=0.05)  # type: ignore[arg-type]

    monkeypatch.setattr("trainer.loop.session.opening.saving_options", rotting)
    run = tmp_path / "run"
    begun = run_here(dataset, run, **exact, num_iterations=20)
    step = begun.lines("checkpoint")[-1]["step"]
    noted = scrubber.Scrubber._due
    flipped: list[Path] = []

    def rot(self: scrubber.Scrubber) -> object:
        if not flipped and self._chain() is not None:
            (file,) = run.glob(f"checkpoints/step-{step:08}/rank-*.bin")
            DAMAGES_OF_A_FILE["a flipped bit"](file)  # after the resume has read it
            flipped.append(file)
        return noted(self)

    monkeypatch.setattr(scrubber.Scrubber, "_due", rot)
    report = RunCheckpoints._report_damage

    def patiently(self: RunCheckpoints, course: Course) -> None:
        watching = self.saving.checkpointer._scrubber
        until = time.monotonic() + 20
        while watching is not None and not watching.found and time.monotonic() < until:
            time.sleep(0.02)
        report(self, course)

    monkeypatch.setattr(RunCheckpoints, "_report_damage", patiently)
    outcome = run_here(dataset, run, **exact, num_iterations=40)
    (damage,) = outcome.lines("checkpoint_damage")
    assert flipped[0].name in damage["problem"]
    later = [line["content"] for line in outcome.lines("checkpoint") if line["step"] > damage["step"]]
    assert later[0] == "full"
    assert latest_metrics(run / "metrics.jsonl").damage is None
    assert outcome.summary["model_digest"] == whole["model_digest"]
    monkeypatch.undo()
    assert run_here(dataset, run, **exact, num_iterations=40).summary["model_digest"] == whole["model_digest"]
