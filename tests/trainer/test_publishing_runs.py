"""Publishing whole runs: with --follow beside a training, other ranks, new ids and words, in buckets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_clouds import CloudPlace
from tests.trainer.support_publishing import (
    applied,
    command,
    exported,
    publishing,
    steps_of,
    write_zipf,
)
from tests.trainer.support_runs import PATIENCE_SECONDS, run_here, start, wait_until
from tests.trainer.support_runs import command as training
from trainer.commands import publish
from trainer.serving.exported import read_export
from trainer.serving.publication.reader import PublicationReader
from trainer.serving.publication.source import PublicationSource

LARGE = {"C1": 40_000, "C2": 20_000, "C3": 500}
ROWS = 2_000


def _pause_until_published(train: subprocess.Popen[bytes], checkpoints: Path, out: Path) -> None:
    """Wait for a checkpoint that is not published, and stop the training until it is."""

    def published() -> int:
        numbers = PublicationReader(str(out)).versions.numbers()
        return PublicationReader(str(out)).versions.manifest(numbers[-1]).step if numbers else 0

    before = published()
    wait_until(lambda: max(steps_of(checkpoints), default=0) > before, train)
    os.killpg(train.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: published() > before, train)
    finally:
        os.killpg(train.pid, signal.SIGCONT)


def test_a_run_is_followed_and_a_reader_applies_its_versions(tmp_path: Path) -> None:
    data = write_zipf(tmp_path / "data", rows=50_000, sizes=LARGE)
    run, out = tmp_path / "run", tmp_path / "out"
    settings = {"checkpoint_interval": 100, "keep_checkpoints": 2, "num_iterations": 1_500}
    train = start(training(data, run, **settings), tmp_path / "train.log")
    words = ["--checkpoint", run / "checkpoints", "--out", out, "--precision", "fp16", "--follow", "0.2"]
    follow = subprocess.Popen(
        [sys.executable, "-m", "trainer.publish", *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    seen: dict[str, int] = {}
    problems: list[str] = []
    stop = threading.Event()

    def serve() -> None:
        """Load each new version above the one that is held; compare it with one that is loaded alone."""
        source, held = PublicationSource(str(out)), None
        while not stop.is_set() or source.newest() not in seen:
            time.sleep(0.05)
            if not list(out.glob("versions/*")) or (version := source.newest()) in seen:
                continue
            held = source.load(version, held)
            alone = PublicationSource(str(out)).load(version, None)
            for name, table in alone.tables.items():
                if not torch.equal(held.tables[name], table):
                    problems.append(f"{version}: {name}")
            seen[version] = held.step

    server = threading.Thread(target=serve)
    server.start()
    try:
        for _ in range(4):
            _pause_until_published(train, run / "checkpoints", out)
        assert train.wait(PATIENCE_SECONDS) == 0, (tmp_path / "train.log").read_text()
        printed, _ = follow.communicate(timeout=PATIENCE_SECONDS)
    finally:
        stop.set()
        server.join(PATIENCE_SECONDS)
        follow.kill()
    lines = [json.loads(line) for line in printed.splitlines()]
    assert lines.pop() == {"end": "finished"}
    assert (problems, lines[-1]["step"]) == ([], 1_500)
    assert len(lines) > 3
    assert len(seen) > 1
    assert seen[lines[-1]["version"]] == 1_500
    expected = exported(run / "checkpoints", tmp_path / "export", "fp16")
    assert applied(out, tmp_path / "applied") == expected
    deltas = [line for line in lines if line["delta"]]
    assert max(line["delta_bytes"] for line in deltas) < lines[0]["bytes"] / 10


def test_a_follower_ends_at_a_signal_and_outlives_a_missing_folder(tmp_path: Path) -> None:
    words = ["--checkpoint", tmp_path / "run" / "checkpoints", "--out", tmp_path / "out", "--follow", "0.2"]
    follow = subprocess.Popen(
        [sys.executable, "-m", "trainer.publish", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    data = write_zipf(tmp_path / "data")
    settings = {"checkpoint_interval": 10, "num_iterations": 20}
    run_here(data, tmp_path / "run", **settings)
    (tmp_path / "run" / "summary.json").unlink()
    wait_until(lambda: bool(list(tmp_path.glob("out/versions/*"))), follow)  # type: ignore[arg-type] # of text
    follow.send_signal(signal.SIGTERM)
    printed, problem = follow.communicate(timeout=PATIENCE_SECONDS)
    assert (follow.returncode, problem) == (0, "")
    assert json.loads(printed.splitlines()[-1]) == {"end": "stopped"}
    assert json.loads(printed.splitlines()[0])["step"] == 20


@pytest.mark.parametrize("sharding", ["table_wise", "row_wise", "column_wise"])
def test_a_run_that_continues_with_fewer_ranks_is_published_further(tmp_path: Path, sharding: str) -> None:
    data = write_zipf(tmp_path / "data", rows=6_000)
    run, out = tmp_path / "run", tmp_path / "out"
    settings = {"checkpoint_interval": 10, "keep_checkpoints": 50, "table_optimizer": "adagrad"}
    settings |= {"sharding_types": sharding, "batch_size": 20}
    for ranks, steps in ((2, 40), (1, 60), (2, 80)):
        words = training(data, run, ranks=ranks, num_iterations=steps, **settings)
        assert start(words, tmp_path / "log").wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
        reports = [
            publishing(run / "checkpoints", out, "--step", step, "--precision", "int8")
            for step in steps_of(run / "checkpoints")
            if step > steps - (40 if steps == 40 else 20)
        ]
        assert "layers" in {each["found_by"] for each in reports}
        expected = exported(run / "checkpoints", tmp_path / f"export-{steps}", "int8")
        assert applied(out, tmp_path / f"applied-{steps}") == expected


def _day(folder: Path, first: int, like: Path | None = None, *, one_width: bool = False) -> Path:
    """Prepare a day of ids that are hashes, and of words that a vocabulary knows from `first` on."""
    random = np.random.default_rng(first)
    users = np.minimum(random.zipf(1.2, ROWS), 900) + 10 * first
    table = {
        "clicked": (users % 3 == 0).astype(int).tolist(),
        "price": random.normal(size=ROWS).tolist(),
        "user": [f"u{each}" for each in users.tolist()],
        "city": [f"c{each}" for each in random.integers(first, first + 60, ROWS)],
        "item": [f"i{each}" for each in random.integers(0, 2_000, ROWS)],
    }
    sparse: list[Any] = [
        {"name": "user", "encoding": "managed_collision", "buckets": 400},
        {"name": "city", "min_frequency": 1, "dim": 4},
        {"name": "item", "min_frequency": 1, "dim": 16},
    ]
    if one_width:
        sparse = [{key: value for key, value in each.items() if key != "dim"} for each in sparse]
    schema = parse({"label": "clicked", "dense": ["price"], "sparse": sparse})
    folder.mkdir(parents=True)
    pq.write_table(pa.table(table), folder / "rows.parquet")
    more: dict[str, Any] = {"schema": schema, "options": PrepareOptions()}
    if like is not None:
        more = {"options": PrepareOptions(like=str(like), grow=True)}
    prepare(str(folder / "rows.parquet"), folder / "data", **more)
    return folder / "data"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8", "int4"])
def test_managed_ids_several_widths_and_a_vocabulary_that_grows(tmp_path: Path, precision: str) -> None:
    one_width = precision in {"int8", "int4"}  # which tables of several widths cannot have
    monday = _day(tmp_path / "monday", 0, one_width=one_width)
    tuesday = _day(tmp_path / "tuesday", 30, like=monday, one_width=one_width)
    settings: dict[str, Any] = {"model": "dlrm" if one_width else "wide_deep"}
    settings |= {"checkpoint_interval": 10, "keep_checkpoints": 50, "num_iterations": 60}
    settings |= {"embedding_dim": 8}
    first, second = tmp_path / "one", tmp_path / "two"
    out = tmp_path / "out"
    run_here(monday, first, **settings)
    for step in steps_of(first / "checkpoints"):
        publishing(first / "checkpoints", out, "--step", step, "--precision", precision)
    run_here(tuesday, second, **settings, init_from=str(first / "checkpoints"))
    reports = [
        publishing(second / "checkpoints", out, "--step", step) for step in steps_of(second / "checkpoints")
    ]
    assert not all(each["full"] for each in reports)
    expected = exported(second / "checkpoints", tmp_path / "export", precision)
    assert any(path.startswith("vocabulary/") for path in expected)
    assert any(path.startswith("managed/") for path in expected)
    assert applied(out, tmp_path / "applied") == expected
    widths = {len(table[0]) for table in read_export(tmp_path / "applied").tables.values()}
    assert len(widths) == (1 if one_width else 3)
    # The first day is still there, with its own vocabulary.
    number = len(steps_of(first / "checkpoints"))
    assert applied(out, tmp_path / "monday-applied", number) == exported(
        first / "checkpoints", tmp_path / "monday-export", precision
    )
    source = PublicationSource(str(out))
    model = source.load(source.newest(), source.load(f"{number:08d}", None))
    assert model.vocabulary is not None
    (tmp_path / "words").mkdir()
    model.vocabulary.export_to(tmp_path / "words")
    assert (tmp_path / "words" / "vocabulary" / "city.jsonl").read_bytes() == (
        tuesday / "vocabulary" / "city.jsonl"
    ).read_bytes()


def test_versions_in_a_bucket(enter_cloud: Callable[[str], CloudPlace], tmp_path: Path) -> None:
    uri = enter_cloud("s3").new_uri()
    out = f"{uri.rpartition('/')[0]}/model"
    settings = {"checkpoint_interval": 10, "keep_checkpoints": 5, "num_iterations": 50}
    data = write_zipf(tmp_path / "data")
    run_here(data, tmp_path / "run", **settings, checkpoint_dir=uri)
    for step in (20, 30, 40):
        publishing(uri, out, "--step", step, "--precision", "int8")
    publishing(uri, out, "--keep", 1)
    reader = PublicationReader(out)
    held = reader.load("3")
    newest = reader.load(reader.newest(), held)
    assert newest.manifest.step == 50
    assert applied(out, tmp_path / "applied") == exported(uri, tmp_path / "export", "int8")
    alone = PublicationReader(out).load("4")
    for name, array in alone.arrays.items():
        assert (array == newest.arrays[name]).all()


def test_a_bucket_that_is_not_there_is_named(
    enter_cloud: Callable[[str], CloudPlace], tmp_path: Path
) -> None:
    place = enter_cloud("s3")
    uri = place.new_uri()
    code, _, problem = command(
        publish.main, "--checkpoint", uri.replace("a-bucket", "no-bucket"), "--out", tmp_path / "out"
    )
    assert code == 1
    assert problem.count("\n") == 1
    assert "no-bucket" in problem
