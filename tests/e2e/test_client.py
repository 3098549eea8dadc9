"""The Python API on this machine: a cluster, a script that trains, its state, and its removal."""

from __future__ import annotations

from pathlib import Path

import pytest

import cloudrec
from cloudrec.client import Client
from cloudrec.engine.plan import Plan
from cloudrec.errors import DeclinedError, RunFailedError, SpecError, UsageError

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, pathlib, sys, time
import cloudrec
folder = pathlib.Path(os.environ["CLOUDREC_CHECKPOINTS"])
first = int((folder / "step").read_text()) if (folder / "step").exists() else 0
for step in range(first + 1, int(sys.argv[1]) + 1):
    time.sleep(0.05)
    cloudrec.log(step=step, loss=1 / step)
    print("step", step, flush=True)
    (folder / "new").write_text(str(step))
    (folder / "new").replace(folder / "step")  # last: a step that is saved was printed
    if step == 3 and "--fail" in sys.argv:
        sys.exit(64)
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    made = cloudrec.Client(home=tmp_path / "home")
    assert isinstance(made, Client)
    return made


def test_a_run_is_launched_stopped_resumed_and_removed_without_a_print(
    client: Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prices: list[float] = []

    def approve(plan: Plan) -> bool:
        prices.append(plan.cost.known_usd)
        return True

    view = client.up("local", approve=approve)
    assert (view.name, view.state, prices) == ("local", "READY", [0.0])
    run = client.train("train.py", ["400"], name="first", stop_grace_s=5)
    assert any(line.endswith("step 2") for line in _until(run.logs(follow=True), "step 2"))
    assert run.view().state == "RUNNING"
    with pytest.raises(TimeoutError, match=r"first has not ended after 0\.1 s"):
        run.wait(timeout_s=0.1)
    assert run.stop().state == "INTERRUPTED"
    before = [record["step"] for record in run.metrics() if record.get("kind") == "train"]
    run.resume()
    assert next(line for line in run.logs(follow=True) if line.endswith(f"step {before[-1] + 1}"))
    run.stop()
    assert [each.name for each in client.runs()] == ["first"]
    assert "metrics.jsonl" in run.fetch(tmp_path / "out").files
    assert client.run("first").view().launches == 2
    removal = client.down()
    assert removal is not None
    assert client.clusters() == []
    assert client.down() is None
    assert capfd.readouterr() == ("", "")


def test_a_failed_run_raises_with_its_cause_or_returns_its_state(client: Client) -> None:
    client.up("local")
    run = client.train("train.py", ["9", "--fail"], name="fails", max_restarts=0)
    with pytest.raises(RunFailedError, match="fails failed"):
        run.wait(timeout_s=60)
    assert run.wait(timeout_s=60, check=False).state == "FAILED"


def test_what_is_declined_changes_nothing(client: Client) -> None:
    with pytest.raises(DeclinedError):
        client.up("local", approve=lambda _plan: False)
    assert client.clusters() == []
    client.up("local")
    with pytest.raises(DeclinedError):
        client.train("train.py", ["1"], approve=lambda _prepared: False)
    with pytest.raises(DeclinedError):
        client.down(approve=lambda _removal: False)
    assert client.runs() == []
    assert client.cluster("local").state == "READY"


def test_wrong_arguments_are_errors_with_a_remedy(client: Client) -> None:
    with pytest.raises(SpecError, match=r"cluster\.nodez") as refused:
        client.up("local", nodez=2)  # type: ignore[call-arg]  # what a user may type
    assert refused.value.remedy == "did you mean 'nodes'?"
    with pytest.raises(UsageError, match="not refunded"):
        client.up("aws", capacity="block")
    with pytest.raises(UsageError, match="no run"):
        client.run("none")
    with pytest.raises(UsageError, match="no cluster"):
        client.cluster("none")


def _until(lines: object, end: str) -> list[str]:
    found: list[str] = []
    for line in lines:  # type: ignore[attr-defined]
        found.append(line)
        if line.endswith(end):
            break
    return found
