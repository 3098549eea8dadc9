"""`cloudrec fetch` of a run whose bucket holds hostile names: nothing is written outside its folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudrec.cli.main import run
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from tests.contract.kubernetes.support_store import bucket

GOOD = {"pods/p-1/rank-0.log": b"hello", "tensorboard/events.out.tfevents.1": b"curve", "summary.json": b"{}"}
HOSTILE = [
    "pods/../../../../escaped",
    "pods/..",
    "pods/x/../../../escaped",
    "pods/./x",
    "pods//etc/escaped",
    "pods/..\\..\\escaped",
    "pods/a\x1b[2Jb",
    "pods/\u202egol",
    "pods/" + "x" * 300,
    "pods/p-1/rank-0.log/inside-a-file",
    "tensorboard/../spec.json",
    "tensorboard/../../second/spec.json",
    "tensorboard/../../../../home/.ssh/authorized_keys",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    with bucket(tmp_path) as made:
        yield made


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sandbox" / "work"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CLOUDREC_HOME", str(tmp_path / "sandbox" / "home"))
    return folder


def make_run(work: Path, storage: str, **spec: Any) -> RunFolder:
    return create_run(
        work.parent / "home" / "runs", RunSpec(name="first", launcher="ray", storage=storage, **spec)
    )


def everything(work: Path) -> dict[str, str]:
    """The content of every file below the sandbox, by name."""
    root = work.parent
    return {
        str(path.relative_to(root)): path.read_text("utf-8", errors="replace")
        for path in root.rglob("*")
        if path.is_file() or path.is_symlink()
    }


@pytest.mark.parametrize("launcher", ["ray", "torchrun", "pytorchjob", "trainjob", "jobset", "rayjob"])
def test_hostile_keys_are_skipped_and_the_rest_of_the_run_is_fetched(
    work: Path, store: tuple[Any, dict[str, str]], capsys: pytest.CaptureFixture[str], launcher: str
) -> None:
    files, environment = store
    for key in [*GOOD, *HOSTILE]:
        files.call_s3(
            "put_object", Bucket="bucket", Key=f"pre/runs/first/{key}", Body=GOOD.get(key, b"hostile")
        )
    folder = make_run(work, "s3://bucket/pre", environment=environment)
    folder.write_spec(RunSpec.from_json(folder.spec_file.read_text().replace('"ray"', f'"{launcher}"')))
    spec = folder.spec_file.read_text()
    assert run(["fetch", "first", "-o", "json"]) == 1
    printed = capsys.readouterr()
    fetched = json.loads(printed.out)["fetched"]
    assert {each["name"] for each in fetched["skipped"]} == set(HOSTILE)
    assert GOOD.keys() <= set(fetched["files"])
    there = everything(work)
    assert "hostile" not in there.values()
    assert {work / "first" / name for name in GOOD} <= set(work.rglob("*"))
    assert folder.spec_file.read_text() == spec
    assert f"warning: {len(HOSTILE)} files were skipped" in printed.err
    assert "\x1b" not in printed.err
    assert {name.split("/")[0] for name in there} == {"work", "home"}
    assert sorted(path.name for path in work.parents[1].iterdir()) == ["log", "sandbox"]


def test_a_run_with_plain_names_is_fetched_with_exit_code_0(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = work.parent / "store" / "runs" / "first"
    for name, data in GOOD.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    make_run(work, str(work.parent / "store"))
    assert run(["fetch", "first", "-o", "json"]) == 0
    fetched = json.loads(capsys.readouterr().out)["fetched"]
    assert fetched["skipped"] == []
    assert GOOD.keys() <= set(fetched["files"])


def test_links_in_the_run_folder_and_in_the_target_are_not_followed(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, outside = work.parent / "store" / "runs" / "first", work.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    for name in (*GOOD, "pods/out/escaped", "tensorboard/leak", "tensorboard/target/escaped", "pods/a\nb"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("from the store")
    folder = make_run(work, str(work.parent / "store")).path
    for name, link in (("pods/out", outside), ("tensorboard/leak", outside / "secret")):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).symlink_to(link)
    (folder / "pods" / "p-1").mkdir()
    (folder / "pods" / "p-1" / ".rank-0.log.new").symlink_to(outside / "draft")
    (work / "first" / "tensorboard").mkdir(parents=True)
    (work / "first" / "tensorboard" / "target").symlink_to(outside)
    assert run(["fetch", "first", "-o", "json"]) == 1
    fetched = json.loads(capsys.readouterr().out)["fetched"]
    skipped = {each["name"] for each in fetched["skipped"]}
    assert skipped == {"pods/out/escaped", "tensorboard/leak", "tensorboard/target/escaped", "pods/a\nb"}
    assert GOOD.keys() <= set(fetched["files"])
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": "secret"}


def test_status_reads_no_other_file_for_a_hostile_leader_name(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = work.parent / "store" / "runs" / "first"
    (source / "leaders").mkdir(parents=True)
    (source / "leaders" / "0001-000001.json").write_text('{"pod": "p-1", "time": 1}')
    (source / "leaders" / "0001-000002.json").write_text('{"pod": "../../../secret", "time": 2}')
    (work.parent / "secret").mkdir()
    (work.parent / "secret" / "events.jsonl").write_text('{"event": "restarting", "cause": "LEAKED"}\n')
    folder = make_run(work, str(work.parent / "store"))
    from cloudrec.launchers.base import record  # noqa: PLC0415

    record.note_starts(folder, folder.spec(), [])
    capsys.readouterr()
    assert "LEAKED" not in folder.ledger.path.read_text()
    assert "restarting" in folder.ledger.path.read_text()
