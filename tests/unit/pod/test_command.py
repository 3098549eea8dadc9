"""A manifest's command, taken apart and put together as a pod runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cloudrec.errors import UsageError
from cloudrec.launch.outputs import flag_value
from cloudrec.pod.command import Command

RANK = ("--no-python", "python", "-m", "cloudrec.pod", "rank", "--")


@pytest.mark.parametrize(
    "program",
    [("torchrun",), ("/opt/venv/bin/torchrun",), ("python", "-m", "torch.distributed.run")],
)
def test_torchrun_runs_below_the_agent_with_restarts_that_the_agent_counts(program: tuple[str, ...]) -> None:
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
    command = Command.parse(words).with_setting("output_dir", "/x")
    elastic = [sys.executable, "-m", "cloudrec.launch._elastic", "--max-restarts", "1000000"]
    assert command.words() == [*elastic, "--nnodes=1:2", *RANK, "trainer", "--a", "1", "--output_dir", "/x"]


@pytest.mark.parametrize("words", [[], ["trainer", "--"], ["torchrun", "--nnodes=1", "trainer"]])
def test_a_command_that_starts_no_torchrun_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"torchrun|no --"):
        Command.parse(words)


def test_a_setting_is_the_flags_or_else_the_files(tmp_path: Path) -> None:
    config = tmp_path / "trainer.yaml"
    config.write_text("dataset-path: s3://a/b\nbatch_size: 4\n")
    words = ["torchrun", *RANK, "trainer", "--config", str(config), "--batch-size=8"]
    command = Command.parse(words)
    assert [command.setting(name) for name in ("dataset_path", "batch_size", "seed")] == [
        "s3://a/b",
        "8",
        None,
    ]


@pytest.mark.parametrize("text", ["[1, 2]", "{unclosed", None])
def test_a_configuration_that_cannot_be_read_is_left_to_the_trainer(tmp_path: Path, text: str | None) -> None:
    config = tmp_path / "trainer.yaml"
    if text:
        config.write_text(text)
    assert Command.parse(["torchrun", *RANK, "trainer", "--config", str(config)]).config() == {}


@pytest.mark.parametrize(
    ("address", "conf", "told"),
    [
        ("r-0.r.training.svc", "", "is_host=1"),
        ("r-10.r.training.svc", "", "is_host=0"),
        ("r-0.r", "join_timeout=60", "join_timeout=60,is_host=1"),
        ("10.0.0.7", "is_host=1", "is_host=1"),
    ],
)
def test_the_pod_that_hosts_the_rendezvous_knows_it_without_dns(address: str, conf: str, told: str) -> None:
    given = [
        "--rdzv-endpoint=r-0.r:29400",
        "--local-addr",
        address,
        *([f"--rdzv-conf={conf}"] if conf else []),
    ]
    words = Command.parse(["torchrun", *given, *RANK, "trainer"]).words()
    assert flag_value(tuple(words), "rdzv_conf") == told
    assert [word for word in words if word.startswith("--rdzv-conf")] == [
        "--rdzv-conf" if "is_host" not in conf else f"--rdzv-conf={conf}"
    ]
