"""A node's agent in a job of Slurm's: `python -m cloudrec.pod slurm -- torchrun FLAGS ...`.

srun starts one on each node. It is an agent as in a pod; what Kubernetes would tell it, Slurm's variables do.
Whatever it ends with, it leaves the code in the folder that the job's script has made for that, and ends with
0 where the others are to be left alone: srun kills them when one ends badly.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import StorageError, UsageError
from cloudrec.home import storage_error, write_atomically
from cloudrec.launch._tether import ONE_SIGNAL
from cloudrec.pod.agent import Agent
from cloudrec.pod.codes import AGAIN, FINISHED
from cloudrec.pod.settings import PodSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEGUN = "begun"


def main(arguments: list[str]) -> int:
    """Run this node's agent to its end."""
    if arguments[:1] != ["--"] or not arguments[1:]:
        raise UsageError("slurm needs torchrun's command after --: slurm -- torchrun FLAGS ...")
    environment = dict(os.environ)
    rank = _variable(environment, "SLURM_PROCID")
    note = Path(_variable(environment, "CLOUDREC_ENDS")) / rank
    told: list[int] = []
    signal.signal(
        signal.SIGTERM, lambda number, _frame: told.append(number)
    )  # until the agent listens itself
    _leave(note, _BEGUN)
    work = _work(environment)
    os.environ.setdefault("NODE_NAME", environment.get("SLURMD_NODENAME", ""))
    os.environ[ONE_SIGNAL] = "1"  # Slurm signals every process of a step, and more than once
    try:
        agent = Agent(_settings(environment, work), _command(environment, arguments[1:]))
        code = AGAIN if told else agent.run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _leave(note, str(code))
    return 0 if code in (FINISHED, AGAIN) else code


def _settings(environment: Mapping[str, str], work: Path) -> PodSettings:
    """Return what a pod's manifest would say."""
    step = ".".join(
        environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "CLOUDREC_STEP")
    )
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    settings = PodSettings.from_environment(environment)
    return replace(settings, pod=f"{node}-{step}", node=node, work=work, again_code=AGAIN)


def _command(environment: Mapping[str, str], words: list[str]) -> list[str]:
    """Return torchrun's command with where the nodes meet: at the first one, from which srun was started."""
    meeting = environment.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"
    is_host = _variable(environment, "SLURM_PROCID") == "0"
    port = _variable(environment, "CLOUDREC_PORT")
    here = meeting if is_host else _address_towards(meeting)
    if here.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    job = ".".join(environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"))
    return [
        *(words[0], "--rdzv-endpoint", f"{meeting}:{port}", "--local-addr", here),
        *("--rdzv-conf", f"is_host={int(is_host)}"),
        *("--rdzv-id", f"{job}.{environment.get('CLOUDREC_STEP', '0')}"),
        *words[1:],
    ]


def _address_towards(host: str) -> str:
    """Return this node's address as another one sees it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _work(environment: Mapping[str, str]) -> Path:
    """Make a folder of this agent's own on the node's disk; StorageError where there is no room for it.

    What an agent in the same place of the same job has left, which was killed, goes first.
    """
    base = Path(environment.get("CLOUDREC_SCRATCH") or tempfile.gettempdir())
    names = ("CLOUDREC_RESULTS", "SLURM_JOB_ID", "SLURM_PROCID")
    place = zlib.crc32("\0".join(environment.get(name, "") for name in names).encode())
    prefix = f"cloudrec-slurm-{os.getuid()}-{place:08x}-"
    for left in base.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    except OSError as error:
        raise storage_error(base, error) from error


def _leave(note: Path, word: str) -> None:
    try:
        write_atomically(note, f"{word}\n")
    except StorageError as error:
        print(f"[agent] {error.message}", file=sys.stderr, flush=True)


def _variable(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if value is None:
        raise UsageError(f"{name} is not set: this is started by srun, in a job of cloudrec's")
    return value
