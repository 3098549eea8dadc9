"""What the manifest tells a pod about itself, read once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import UsageError
from cloudrec.launch.folder import RunFolder
from cloudrec.pod.codes import AGAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

WORK = Path("/cloudrec")
TERMINATION_LOG = Path("/dev/termination-log")
PARENT = "CLOUDREC_PARENT"
RUN_FOLDER = "CLOUDREC_RUN_FOLDER"  # by which the agent tells its ranks where they write


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """One pod of one launch of a run.

    Args:
        run: the run's name.
        launch: which launch of it, 1 for the first.
        results: URI of the folder in the cluster's storage that holds the run's files; empty for none.
        fabric: how GPUs of different nodes are meant to talk.
        instance_type: the cloud's name of the machine.
        gpus: how many GPUs this node is meant to have; 0 where it trains without.
        allow_tcp: train even where the intended transport is not found.
        max_restarts: how many crashes are forgiven.
        grace_s: seconds between SIGTERM and the kill.
        pod: the pod's name and uid, which no other pod ever has.
        node: the node it is on.
        profile: a script whose variables the transport needs; empty without one.
        work: the folder that it may write to.
        again_code: what the pod ends with where its engine is to start another one.
        parent: the process without which the pod is to end; 0 where there is none.
    """

    run: str = "run"
    launch: int = 1
    results: str = ""
    fabric: str = "none"
    instance_type: str = ""
    gpus: int = 0
    allow_tcp: bool = False
    max_restarts: int = 3
    grace_s: float = 30.0
    pod: str = "pod-0"
    node: str = ""
    profile: str = ""
    work: Path = WORK
    again_code: int = AGAIN
    parent: int = 0

    @property
    def folder(self) -> RunFolder:
        """The run's folder in this pod."""
        return RunFolder(path=self.work / "run")

    @property
    def data(self) -> Path:
        """Where a dataset from an object store is put."""
        return self.work / "data"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PodSettings:
        """Read the variables that the manifest sets; UsageError for one that makes no sense."""
        name, uid = environment.get("POD_NAME", "pod-0"), environment.get("POD_UID", "")
        return cls(
            run=environment.get("CLOUDREC_RUN", cls.run),
            launch=int(_number(environment, "CLOUDREC_LAUNCH", cls.launch)),
            results=environment.get("CLOUDREC_RESULTS", ""),
            fabric=environment.get("CLOUDREC_FABRIC", cls.fabric) or cls.fabric,
            instance_type=environment.get("CLOUDREC_INSTANCE_TYPE", ""),
            gpus=int(_number(environment, "CLOUDREC_GPUS", cls.gpus)),
            allow_tcp=environment.get("CLOUDREC_ALLOW_TCP", "0") == "1",
            max_restarts=int(_number(environment, "CLOUDREC_MAX_RESTARTS", cls.max_restarts)),
            grace_s=_number(environment, "CLOUDREC_GRACE_S", cls.grace_s),
            pod=f"{name}-{uid}" if uid else name,
            node=environment.get("NODE_NAME", ""),
            profile=environment.get("CLOUDREC_PROFILE", ""),
            work=Path(environment.get("CLOUDREC_WORK") or WORK),
            again_code=int(_number(environment, "CLOUDREC_AGAIN_CODE", AGAIN)),
            parent=int(_number(environment, PARENT, 0)),
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
