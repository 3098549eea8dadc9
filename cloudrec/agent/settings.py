"""The settings of a pod, read from the variables of its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import UsageError
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec_contract.exit_codes import STOPPED

if TYPE_CHECKING:
    from collections.abc import Mapping

WORK = Path("/cloudrec")
TERMINATION_LOG = Path("/dev/termination-log")
PARENT = "CLOUDREC_PARENT"
RUN_FOLDER = "CLOUDREC_RUN_FOLDER"  # where the ranks write; set by the agent


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """One pod of one launch of a run.

    Args:
        run: the run's name.
        launch: the number of the launch, 1 for the first.
        results: URI of the folder of results in the cluster's storage; empty for none.
        fabric: the network between GPUs of different nodes.
        instance_type: the cloud's name for the machine.
        cards: cards of the fabric that this node must have; 0 for the number of its transport profile.
        hugepages_mib: free huge pages of 2 MiB that this node must have, in MiB; 0 for the number of its
            transport profile.
        gpus: GPUs that this node must have; 0 to train without GPUs.
        allow_tcp: train over TCP if the intended transport is not found.
        max_restarts: number of crashes after which the run still continues.
        grace_s: seconds between SIGTERM and the kill.
        start_timeout_s: seconds for the nodes of a run to join before its first step; 0 for no limit.
        pod: the pod's name and uid, which no other pod has.
        node: the name of its node.
        profile: a script that sets the transport's variables; empty without one.
        work: the folder that the pod may write to.
        again_code: the exit code after which the engine starts another pod.
        parent: process id whose end stops the pod; 0 for none.
        topology: the file with the places of nodes in the network; empty if ranks are ordered by name.
        metrics_port: the port at which its metrics are served; 0 for none.
        in_place: whether the container is started again in its pod after a signal has ended it.
        elects_host: whether another pod hosts the rendezvous if the first one is lost.
    """

    run: str = "run"
    launch: int = 1
    results: str = ""
    fabric: str = "none"
    instance_type: str = ""
    cards: int = 0
    hugepages_mib: int = 0
    gpus: int = 0
    allow_tcp: bool = False
    max_restarts: int = 3
    grace_s: float = 30.0
    start_timeout_s: float = 0.0
    pod: str = "pod-0"
    node: str = ""
    profile: str = ""
    work: Path = WORK
    again_code: int = STOPPED
    parent: int = 0
    topology: str = ""
    elects_host: bool = False
    metrics_port: int = 0
    in_place: bool = False

    @property
    def folder(self) -> RunFolder:
        """The run's folder in this pod."""
        return RunFolder(path=self.work / "run")

    @property
    def data(self) -> Path:
        """The folder for a dataset that is downloaded from an object store."""
        return self.work / "data"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PodSettings:
        """Return the settings in a pod's variables; UsageError for a number that is out of range."""
        name, uid = environment.get("POD_NAME", "pod-0"), environment.get("POD_UID", "")
        return cls(
            run=environment.get("CLOUDREC_RUN", cls.run),
            launch=int(_number(environment, "CLOUDREC_LAUNCH", cls.launch)),
            results=environment.get("CLOUDREC_RESULTS", ""),
            fabric=environment.get("CLOUDREC_FABRIC", cls.fabric) or cls.fabric,
            instance_type=environment.get("CLOUDREC_INSTANCE_TYPE", ""),
            cards=int(_number(environment, "CLOUDREC_CARDS", cls.cards)),
            hugepages_mib=int(_number(environment, "CLOUDREC_HUGEPAGES_MIB", cls.hugepages_mib)),
            gpus=int(_number(environment, "CLOUDREC_GPUS", cls.gpus)),
            allow_tcp=environment.get("CLOUDREC_ALLOW_TCP", "0") == "1",
            max_restarts=int(_number(environment, "CLOUDREC_MAX_RESTARTS", cls.max_restarts)),
            grace_s=_number(environment, "CLOUDREC_GRACE_S", cls.grace_s),
            start_timeout_s=_number(environment, "CLOUDREC_START_TIMEOUT_S", cls.start_timeout_s),
            pod=f"{name}-{uid}" if uid else name,
            node=environment.get("NODE_NAME", ""),
            profile=environment.get("CLOUDREC_PROFILE", ""),
            work=Path(environment.get("CLOUDREC_WORK") or WORK),
            again_code=int(_number(environment, "CLOUDREC_AGAIN_CODE", STOPPED)),
            parent=int(_number(environment, PARENT, 0)),
            topology=environment.get("CLOUDREC_TOPOLOGY", ""),
            metrics_port=int(_number(environment, "CLOUDREC_METRICS_PORT", cls.metrics_port)),
            in_place=environment.get("CLOUDREC_IN_PLACE", "0") == "1",
            elects_host=environment.get("CLOUDREC_ELECTS_HOST", "0") == "1",
        )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{name} is {text!r}; it must be a number of at least 0")
    return value
