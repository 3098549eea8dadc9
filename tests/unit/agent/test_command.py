"""The command of a manifest, parsed and rebuilt as a pod runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloudrec.agent.settings import PodSettings
from cloudrec.agent.supervisor.command import TorchrunCommand
from cloudrec.agent.supervisor.prepare import keep_near
from cloudrec.errors import UsageError
from cloudrec_contract.settings import flag_value

RANK = ("--no-python", "python", "-m", "cloudrec.agent", "rank", "--")


@pytest.mark.parametrize(
    "program",
    [("torchrun",), ("/opt/venv/bin/torchrun",), ("python", "-m", "torch.distributed.run")],
)
def test_torchrun_runs_below_the_agent_and_the_agent_counts_restarts(program: tuple[str, ...]) -> None:
    words = [
        *program,
        "--nnodes=1:2",
        "--max-restarts",
        "3",
        "--max_restarts=2",
        *RANK,
        "trainer",
        "--a",
        "1",
    ]
    command = TorchrunCommand.parse(words).with_setting("output_dir", "/x")
    elastic = [sys.executable, "-P", "-m", "cloudrec.launchers.local.elastic", "--max-restarts", "1000000"]
    assert command.words() == [*elastic, "--nnodes=1:2", *RANK, "trainer", "--a", "1", "--output_dir", "/x"]


@pytest.mark.parametrize("words", [[], ["trainer", "--"], ["torchrun", "--nnodes=1", "trainer"]])
def test_a_command_without_torchrun_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"torchrun|no --"):
        TorchrunCommand.parse(words)


def test_a_flag_overrides_the_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "trainer.yaml"
    config.write_text("dataset-path: s3://a/b\nbatch_size: 4\n")
    words = ["torchrun", *RANK, "trainer", "--config", str(config), "--batch-size=8"]
    settings = TorchrunCommand.parse(words).settings()
    assert settings.dataset_path == "s3://a/b"
    assert [settings.values.get(name) for name in ("batch_size", "seed")] == ["8", None]


@pytest.mark.parametrize("text", ["[1, 2]", "{unclosed", None])
def test_an_unreadable_configuration_is_left_to_the_trainer(tmp_path: Path, text: str | None) -> None:
    config = tmp_path / "trainer.yaml"
    if text:
        config.write_text(text)
    assert TorchrunCommand.parse(["torchrun", *RANK, "trainer", "--config", str(config)]).config() == {}


@pytest.mark.parametrize(
    ("address", "conf", "told"),
    [
        ("r-0.r.training.svc", "", "is_host=1"),
        ("r-10.r.training.svc", "", "is_host=0"),
        ("r-0.r", "join_timeout=60", "join_timeout=60,is_host=1"),
        ("10.0.0.7", "is_host=1", "is_host=1"),
    ],
)
def test_the_pod_that_hosts_the_rendezvous_needs_no_dns(address: str, conf: str, told: str) -> None:
    given = [
        "--rdzv-endpoint=r-0.r:29400",
        "--local-addr",
        address,
        *([f"--rdzv-conf={conf}"] if conf else []),
    ]
    words = TorchrunCommand.parse(["torchrun", *given, *RANK, "trainer"]).words()
    assert flag_value(tuple(words), "rdzv_conf") == told
    assert [word for word in words if word.startswith("--rdzv-conf")] == [
        "--rdzv-conf" if "is_host" not in conf else f"--rdzv-conf={conf}"
    ]


def test_another_pod_than_the_first_can_host_the_rendezvous() -> None:
    given = ["--rdzv-endpoint", "r-0.r:29400", "--local-addr", "r-2.r.training.svc"]
    command = TorchrunCommand.parse(["torchrun", *given, *RANK, "trainer"])
    own = command.own_endpoint()
    assert (command.endpoint(), own) == ("r-0.r:29400", "r-2.r.training.svc:29400")
    there, here = tuple(command.words("r-1.r.training.svc:29400")), tuple(command.words(own))
    assert flag_value(there, "rdzv_endpoint") == "r-1.r.training.svc:29400"
    assert [flag_value(words, "rdzv_conf") for words in (there, here)] == ["is_host=0", "is_host=1"]


@pytest.mark.parametrize(
    ("trainer", "added"),
    [
        (("python", "-P", "-m", "trainer", "--checkpoint_dir", "s3://b/r"), "/work/near"),
        (("python", "-m", "trainer", "--checkpoint-dir=gs://b/r"), "/work/near"),
        (("python", "-m", "trainer", "--checkpoint_dir", "/shared/r"), None),
        (("python", "-m", "trainer"), None),
        (("python", "mine.py", "--checkpoint_dir", "s3://b/r"), None),
        (("python", "-m", "trainer", "--checkpoint_dir", "s3://b/r", "--checkpoint_near_dir", ""), ""),
        (("python", "-m", "trainer", "--checkpoint_dir", "s3://b/r", "--checkpoint_near_dir=/ssd"), "/ssd"),
    ],
)
def test_copies_of_checkpoints_in_a_bucket_stay_on_the_node(
    trainer: tuple[str, ...], added: str | None
) -> None:
    command = TorchrunCommand.parse(["torchrun", *RANK, *trainer])
    settings = PodSettings(work=Path("/work"))
    assert flag_value(keep_near(command, settings).trainer, "checkpoint_near_dir") == added


def test_the_configuration_file_may_turn_copies_on_the_node_off(tmp_path: Path) -> None:
    config = tmp_path / "trainer.yaml"
    config.write_text("checkpoint_dir: s3://b/r\ncheckpoint-near-dir: ''\n")
    command = TorchrunCommand.parse(["torchrun", *RANK, "python", "-m", "trainer", "--config", str(config)])
    assert keep_near(command, PodSettings()) == command
