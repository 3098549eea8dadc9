"""A real Slurm on this machine alone: `python scripts/slurm_cluster.py [--nodes N] [--install]`, as root.

It runs munged, slurmctld and a slurmd for each node on loopback, with separate keys, ports and files below
one temporary folder, and prints one JSON line once jobs can be submitted: {"env": {"SLURM_CONF": ...}}. It
ends everything, jobs too, when its standard input ends or it is asked to stop. The system's own Slurm, if
there is one, is not touched; --install has apt bring the packages where they are missing. With --accounting
there are a slurmdbd and its database, too, and jobs must name accounts that root may use.
"""

from __future__ import annotations

import argparse
import ctypes
import getpass
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

sys.path.insert(0, str(Path(__file__).parents[1]))  # this is run as a file

from cloudrec.process.ports import free_ports
from scripts import slurm_accounting as accounting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
SSHD = {"sshd": "openssh-server"}
_NAME = "cloudrec"
_SBIN = ("/usr/sbin", "/usr/local/sbin")
_READY_S, _END_S, _POLL_S = 30.0, 10.0, 0.1
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_CONFIG = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
{accounting}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
KillWait=10
MessageTimeout=10
MinJobAge={min_job_age}
GresTypes=gpu
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} RealMemory=4000
NodeName=g[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{next}] CPUs=8 RealMemory=4000 \
Gres=gpu:4 State=DOWN
PartitionName=cpu Nodes=n[1-{nodes}] Default=YES MaxTime=60 State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=n[1-{nodes}] MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=gpu Nodes=g[1-2] MaxTime=30 State=UP
PartitionName=closed Nodes=n1 MaxTime=60 State=DOWN
"""


class SlurmUnavailableError(Exception):
    """Slurm cannot run here; the message has the reason."""


class SlurmCluster:
    """Slurm's daemons, from `start` to `end`; use it as a context.

    Args:
        nodes: how many nodes.
        cpus: the cores that each node reports.
        min_job_age: seconds for which the controller remembers a job that has ended.
        has_accounting: whether there is a slurmdbd, which remembers it longer.
    """

    def __init__(
        self, *, nodes: int = 2, cpus: int = 1, min_job_age: int = 300, has_accounting: bool = False
    ) -> None:
        self._nodes, self._cpus, self._min_job_age = nodes, cpus, min_job_age
        self._has_accounting, self._has_controller = has_accounting, False
        self._host = socket.gethostname().partition(".")[0]
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which Slurm's tools find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Start the daemons, and return once all nodes are idle."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # job steps detach themselves from slurmd
        self._write_files()
        # munged may not be asked before its socket is there
        self._start("munged", "--foreground", "--force", *self._munge_flags())
        self._await((self.folder / "munge.socket").exists, "munged")
        if self._has_accounting:
            self._start_accounting()
        config = self.environment["SLURM_CONF"]
        self._has_controller = True
        self._start("slurmctld", "-D", "-f", config)
        for number in range(1, self._nodes + 1):
            self._start("slurmd", "-D", "-f", config, "-N", f"n{number}")
        self._await(self._is_ready, "slurmctld or a slurmd")

    def end(self) -> None:
        """End all jobs and daemons, and remove the files."""
        if self._has_controller:
            self._tool("scancel", "--signal=KILL", "--full", f"--user={os.getuid()}")
            self._tool("scancel", f"--user={os.getuid()}")
            give_up = time.monotonic() + _END_S
            while self._tool("squeue", "--noheader").stdout.strip() and time.monotonic() < give_up:
                time.sleep(_POLL_S)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(_END_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        _end_children()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_files(self) -> None:
        self.folder.chmod(0o755)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        ports = free_ports(self._nodes + 4)
        self._accounting_port = ports[-1]
        books = accounting.settings(self.folder, ports[-1]) if self._has_accounting else accounting.OFF
        text = _CONFIG.format(
            cluster=_NAME,
            accounting=books,
            host=self._host,
            folder=self.folder,
            ports=ports,
            next=ports[1] + 1,
            first=ports[3],
            last=ports[3] + self._nodes - 1,
            nodes=self._nodes,
            cpus=self._cpus,
            min_job_age=self._min_job_age,
        )
        (self.folder / "slurm.conf").write_text(text, encoding="utf-8")
        (self.folder / "gres.conf").write_text("NodeName=g[1-2] Name=gpu Count=4\n", encoding="utf-8")

    def _munge_flags(self) -> list[str]:
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}
        log = ["--log-file", str(self.folder / "munge.log")]
        return log + [f"--{flag}={self.folder}/munge.{end}" for flag, end in files.items()]

    def _start_accounting(self) -> None:
        """Start the database and slurmdbd, and register the cluster there before its controller connects."""
        port, install_db = self._accounting_port, program("mariadb-install-db")
        if problem := accounting.make(self.folder, host=self._host, port=port, install_db=install_db):
            raise SlurmUnavailableError(problem)
        self._start("mariadbd", *accounting.database_flags(self.folder))
        self._await(accounting.socket_of(self.folder).exists, "mariadbd")
        self._start("slurmdbd", "-D", **accounting.variables(self.folder))
        self._await(self._has_books, "slurmdbd")
        for words in accounting.orders(_NAME, getpass.getuser()):
            if (done := self._tool(*words)).returncode:
                raise SlurmUnavailableError(f"{' '.join(words)}: {done.stdout} {done.stderr}")

    def _has_books(self) -> bool:
        return self._tool("sacctmgr", "--noheader", "show", "cluster").returncode == 0

    def _start(self, name: str, *arguments: str, **variables: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            daemon = subprocess.Popen(
                [program(name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **self.environment, **variables},
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no thread is there yet
            )
        self._daemons.append(daemon)

    def _is_ready(self) -> bool:
        states = self._tool("sinfo", "--noheader", "--partition=cpu", "--Node", "--format=%t")
        return states.stdout.split() == ["idle"] * self._nodes

    def _tool(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                words,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=_END_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 1, "", "")

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + _READY_S
        while not is_there():
            ended = [daemon for daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > give_up:
                raise SlurmUnavailableError(f"{what} did not come up:\n{self._last_words()}")
            time.sleep(_POLL_S)

    def _last_words(self) -> str:
        logs = [*sorted(self.folder.glob("*.out")), *sorted(self.folder.glob("*.log"))]
        tails = [(path.name, path.read_text(encoding="utf-8", errors="replace")[-600:]) for path in logs]
        return "\n".join(f"{name}: {text.strip()}" for name, text in tails if text.strip())


def program(name: str) -> str:
    """Return a program's path; a user's PATH may lack the folders of daemons."""
    return shutil.which(name) or shutil.which(name, path=":".join(_SBIN)) or name


def missing(programs: Mapping[str, str]) -> list[str]:
    """Return the packages of programs that are not installed."""
    return sorted({package for name, package in programs.items() if not Path(program(name)).is_absolute()})


def require(programs: Mapping[str, str], *, install: bool) -> None:
    """Install missing programs; SlurmUnavailableError names those that cannot be installed.

    Args:
        programs: the package of each.
        install: whether apt may install what is missing.
    """
    if os.geteuid() != 0:
        raise SlurmUnavailableError("slurmd needs root, and this is another user")
    if not (packages := missing(programs)):
        return
    if not install or shutil.which("apt-get") is None:
        raise SlurmUnavailableError(f"not installed: {', '.join(packages)} (apt-get install them)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "--quiet", *words],  # noqa: S607 - found on PATH, as the others are
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode or missing(programs):
        raise SlurmUnavailableError(f"apt-get could not install {packages}: {done.stderr.strip()[-300:]}")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_children() -> None:
    """Kill and reap what has become this process's child: job steps, and what they left."""
    give_up = time.monotonic() + _END_S
    while time.monotonic() < give_up:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        if not text.split():
            return
        for pid in map(int, text.split()):
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main(arguments: list[str]) -> int:
    """Run a cluster until standard input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes [2]")
    parser.add_argument("--cpus", type=int, default=1, help="cores that each node says it has [1]")
    parser.add_argument("--min-job-age", type=int, default=300, help="seconds a job is remembered [300]")
    parser.add_argument("--ssh", action="store_true", help="sshd must be there as well, for a login node")
    parser.add_argument("--install", action="store_true", help="have apt install what is missing")
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and a database")
    options = parser.parse_args(arguments)
    needed = PROGRAMS | (SSHD if options.ssh else {}) | (accounting.PROGRAMS if options.accounting else {})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        require(needed, install=options.install)
        with SlurmCluster(
            nodes=options.nodes,
            cpus=options.cpus,
            min_job_age=options.min_job_age,
            has_accounting=options.accounting,
        ) as cluster:
            print(json.dumps({"env": cluster.environment}), flush=True)
            while not select.select([sys.stdin], [], [], 1.0)[0] or os.read(sys.stdin.fileno(), 1024):
                _reap()
    except SlurmUnavailableError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 69
    except KeyboardInterrupt:
        return 130
    return 0


def _reap() -> None:
    """Reap job steps that have ended and have no other parent."""
    known = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    for pid in map(int, known.split()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                os.waitpid(pid, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
