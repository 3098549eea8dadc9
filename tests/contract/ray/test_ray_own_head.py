"""The launcher `ray` without an address: a separate Ray head per run, on this machine."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import psutil
import pytest

from cloudrec.app.notices.awaiting import await_end
from cloudrec.home import locked
from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.ray.launcher import LAUNCHER
from cloudrec.observe.status import wait_for_end
from cloudrec.process import ray_head
from tests.unit.notify.support_receivers import hooks

FAKE_TRAINER = (sys.executable, str(Path(__file__).parents[2] / "e2e" / "fake_trainer.py"))
SECONDS = 150.0


def _processes(head: ray_head.RayHead) -> list[psutil.Process]:
    """Return all descendants of a head's process."""
    return [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]


def _listening(processes: list[psutil.Process]) -> set[str]:
    found = set()
    for process in processes:
        try:
            connections = process.net_connections("inet")
        except psutil.Error:
            continue
        found |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return found


def test_the_head_of_a_run_listens_on_loopback_requires_a_token_and_ends_with_the_run(
    tmp_path: Path,
) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray[default] is not installed")
    spec = RunSpec(
        name="own",
        launcher="ray",
        trainer_config={"steps": 40, "step_s": 0.05},
        trainer_command=FAKE_TRAINER,
        storage=str(tmp_path / "storage"),
    )
    LAUNCHER.preflight(spec)
    run = create_run(tmp_path / "runs", spec)
    LAUNCHER.submit(run)
    head = ray_head.read_head(run.path / "ray")
    assert head
    lines = LAUNCHER.logs(run, rank=0, follow=True)
    assert any(line == "rank 0 step 1" for line in lines), "lines come while it runs"
    below = _processes(head)
    addresses = _listening(below)
    assert addresses
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    token = ray_head.token_file(run.path / "ray")
    assert token.stat().st_mode & 0o077 == 0
    assert all(
        token.read_text() not in " ".join(process.cmdline()) for process in below if process.is_running()
    )
    assert "rank 0 has finished" in list(lines)
    assert wait_for_end(run, timeout_s=SECONDS).state is RunState.SUCCEEDED
    _until_gone(run, below)
    assert not Path(head.sockets).exists()


def _until_gone(run: RunFolder, processes: list[psutil.Process]) -> None:
    give_up = time.monotonic() + SECONDS
    while run.is_alive or any(process.is_running() for process in processes):
        assert time.monotonic() < give_up, [process for process in processes if process.is_running()]
        time.sleep(0.2)


def test_this_machine_notifies_the_end_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray[default] is not installed")
    monkeypatch.setenv("CLOUDREC_NOTIFY_POLL_S", "0.5")
    with hooks() as server:
        monkeypatch.setenv("ML_HOOK", server.url)
        spec = RunSpec(
            name="notified",
            launcher="ray",
            trainer_config={"steps": 5, "step_s": 0.05},
            trainer_command=FAKE_TRAINER,
            storage=str(tmp_path / "storage"),
            notify={"webhook": "ML_HOOK"},
        )
        run = create_run(tmp_path / "runs", spec)
        LAUNCHER.submit(run)
        await_end(run, spec)
        deadline = time.monotonic() + SECONDS
        while not server.got and time.monotonic() < deadline:
            time.sleep(0.2)
        assert [(each["event"], each["run"]) for each in server.got] == [("finished", "notified")]
        with locked(run.path / "awaiting.lock", what="the end", wait_s=60):
            assert LAUNCHER.state(run).state is RunState.SUCCEEDED
