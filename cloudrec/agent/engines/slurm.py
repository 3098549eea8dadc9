"""A node's agent in a Slurm job: `python -m cloudrec.agent slurm -- torchrun FLAGS ...`.

srun starts one on each node. It is the same agent as in a pod, with settings from Slurm's variables. It
writes its exit code to a file for the job's script. It exits with 0 if the other agents may continue, since
srun kills them when one exits with another code.
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

from cloudrec.agent.settings import PodSettings
from cloudrec.agent.supervisor.agent import Agent
from cloudrec.errors import StorageError, UsageError
from cloudrec.home import storage_error, write_atomically
from cloudrec.process.tether import ONE_SIGNAL
from cloudrec_contract.exit_codes import FINISHED, STOPPED

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
    signals: list[int] = []
    # Until the agent installs its handler: the default action would end this process without a note.
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    _write_note(note, _BEGUN)
    work = _work(environment)
    os.environ.setdefault("NODE_NAME", environment.get("SLURMD_NODENAME", ""))
    os.environ[ONE_SIGNAL] = "1"  # Slurm signals every process of a step, and more than once
    try:
        agent = Agent(_settings(environment, work), _command(environment, arguments[1:]))
        code = STOPPED if signals else agent.run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _write_note(note, str(code))
    return 0 if code in (FINISHED, STOPPED) else code


def _settings(environment: Mapping[str, str], work: Path) -> PodSettings:
    """Return the settings, which in Kubernetes are in the pod's manifest."""
    step = ".".join(
        environment.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "CLOUDREC_STEP")
    )
    node = environment.get("SLURMD_NODENAME") or socket.gethostname()
    settings = PodSettings.from_environment(environment)
    return replace(settings, pod=f"{node}-{step}", node=node, work=work, again_code=STOPPED)


def _command(environment: Mapping[str, str], words: list[str]) -> list[str]:
    """Return torchrun's command with the rendezvous, which is on the first node, where srun was started."""
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
    """Return the address of the interface by which this node reaches a host."""
    # `connect` of a UDP socket chooses the interface, and sends no packet.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def _work(environment: Mapping[str, str]) -> Path:
    """Create a folder for this agent on the node's disk; StorageError if the disk refuses.

    The folders of earlier agents with the same rank in the same job, which were killed, are removed first.
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


def _write_note(note: Path, text: str) -> None:
    try:
        write_atomically(note, f"{text}\n")
    except StorageError as error:
        print(f"[agent] {error.message}", file=sys.stderr, flush=True)


def _variable(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if value is None:
        raise UsageError(
            f"{name} is not set", remedy="this command is for a job of `cloudrec train`, where srun starts it"
        )
    return value
