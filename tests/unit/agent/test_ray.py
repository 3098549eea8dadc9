"""The pod of a Ray worker waits for its agent to end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cloudrec.agent.engines import ray
from cloudrec.agent.settings import PodSettings

_SAVES = """
import signal, sys, time
def stop(*_):
    time.sleep(0.2)
    print("saved", flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
while True:  # a signal just before a sleep is handled after it
    time.sleep(0.05)
"""


def _wait_for(path: Path) -> None:
    give_up = time.monotonic() + 180
    while not path.exists() and time.monotonic() < give_up:
        time.sleep(0.02)


def test_a_stop_waits_for_the_checkpoint_and_prevents_another_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_WORK", str(tmp_path))
    node, ready = ray.Node(), tmp_path / "ready"
    saves = _SAVES.replace('print("ready", flush=True)', f"open({str(ready)!r}, 'w').close()")
    codes: list[int] = []
    running = threading.Thread(target=lambda: codes.append(node.run([sys.executable, "-c", saves], 0.0)))
    running.start()
    _wait_for(ready)
    assert ray.stop(PodSettings(work=tmp_path, grace_s=20)) == 0
    running.join(300)
    assert codes == [75]
    assert node.run([sys.executable, "-c", "raise SystemExit(1)"], 0.0) == 75


def test_an_orphaned_agent_is_ended_before_another_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDREC_WORK", str(tmp_path))
    left = subprocess.Popen([sys.executable, "-c", _SAVES], stdout=subprocess.PIPE)
    assert left.stdout is not None
    left.stdout.readline()
    (tmp_path / "ray-agent.pid").write_text(str(left.pid))
    reaper = threading.Thread(target=left.wait)  # as the pod's first process would
    reaper.start()
    assert ray.Node().run([sys.executable, "-c", ""], 0.0) == 0
    reaper.join(300)
    left.stdout.close()
    assert left.returncode == 75


def test_a_pod_without_an_agent_stops_at_once(tmp_path: Path) -> None:
    # A wait for the grace would be longer than any test may take.
    assert ray.stop(PodSettings(work=tmp_path, grace_s=100_000)) == 0


@pytest.mark.parametrize("words", [["ray"], ["ray", "/no/such/file"]])
def test_a_driver_without_a_launch_exits_with_64_and_the_reason(words: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cloudrec.agent", *words], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 64
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
