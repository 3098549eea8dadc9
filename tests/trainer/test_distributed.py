from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudrec.process.ports import free_port
from cloudrec_contract.exit_codes import PEER_LOST
from trainer.base.console import is_lost_peer
from trainer.base.distributed import read_timeout, record_flights
from trainer.base.errors import ConfigError

PATIENCE_SECONDS = 300.0
SUM_WITH_A_RANK_THAT_STAYS_AWAY = """
import sys
from pathlib import Path
from trainer.base.console import guarded
from trainer.base.distributed import join_world

def work():
    with join_world("cpu", Path()) as world:
        print("joined", flush=True)
        if world.rank == 1:
            sys.stdin.read()
        world.sum([1.0])
    return 0

sys.exit(guarded(work))
"""


def _start(rank: int, port: int, timeout: str) -> subprocess.Popen[str]:
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(
        [sys.executable, "-c", SUM_WITH_A_RANK_THAT_STAYS_AWAY],
        env={**os.environ, **place, **meeting, "PROCESS_GROUP_TIMEOUT_SECONDS": timeout},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_rank_waits_for_its_peers_up_to_the_configured_timeout() -> None:
    port = free_port()
    with _start(0, port, "3") as waiting, _start(1, port, "30") as away:
        try:
            assert waiting.stdout is not None
            assert waiting.stderr is not None
            assert waiting.stdout.readline() == "joined\n"
            started = time.monotonic()
            code = waiting.wait(PATIENCE_SECONDS)
            waited = time.monotonic() - started
            message = waiting.stderr.read()
        finally:
            waiting.kill()
            away.kill()
    assert code == PEER_LOST
    assert message.startswith("error: lost contact with another rank")
    assert 2 < waited < 20


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", ""])
def test_a_timeout_that_is_not_a_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="PROCESS_GROUP_TIMEOUT_SECONDS"):
        read_timeout({"PROCESS_GROUP_TIMEOUT_SECONDS": text})
    assert read_timeout({"PROCESS_GROUP_TIMEOUT_SECONDS": "2.5"}) == 2.5
    assert read_timeout({}) == 600


def test_nccl_flight_records_are_written_to_the_output_folder_by_default(
    tmp_path: Path,
) -> None:
    environment = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "false"}
    record_flights(tmp_path, environment)
    assert environment == {
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "false",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path.resolve()}/flight_recorder/rank_",
    }
    assert Path(environment["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"]).parent.is_dir()


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        ("[..] Connection closed by peer [127.0.0.1]:80", True),
        ("NCCL error in: x.cpp, ncclRemoteError: A call failed possibly due to a network error", True),
        ("Failed to recv, got 0 bytes. Connection was likely closed", True),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_lost_peer_is_distinguished_from_an_error_of_this_rank(message: str, *, lost: bool) -> None:
    assert is_lost_peer(RuntimeError(message)) == lost
