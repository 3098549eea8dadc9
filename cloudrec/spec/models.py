"""The spec's frozen models. What only one provider understands stays in `settings`, which it validates."""

from __future__ import annotations

import getpass
import os
import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

MAX_NODES = 512  # of eight GPUs each: more is a slip of the keyboard
MAX_PROCESSES = 1024  # a process per GPU: more on one machine is a slip of the keyboard
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


class Model(BaseModel):
    """A frozen model that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _label(longest: int) -> AfterValidator:
    """Accept what every cloud accepts in a name: lower-case letters, digits and inner dashes."""

    def check(value: str) -> str:
        if len(value) > longest:
            raise ValueError(f"has {len(value)} characters; {longest} is the limit")
        if not _LABEL.fullmatch(value):
            raise ValueError("may hold only a-z, 0-9 and inner dashes, as the clouds' names do")
        return value

    return AfterValidator(check)


def _duration(value: str) -> str:
    seconds_of(value)
    return value


def seconds_of(duration: str) -> float:
    """Return a duration such as 90m, 8h or 2d in seconds; ValueError where it is none."""
    found = _DURATION.fullmatch(duration)
    if found is None or not float(found[1]):
        raise ValueError("is no duration such as 90m, 8h or 2d")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def _moment(value: str) -> str:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError("has no time zone; end it with Z")
    return value


ClusterName = Annotated[str, _label(40)]  # suffixes of ours must still fit the clouds' 63
RunName = Annotated[str, _label(52)]  # Kubernetes adds a rank and a hash to a Job's name within 63


def _listed(value: object) -> object:
    """Accept what files hold, a list, and what one flag or variable holds: a,b."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def default_owner() -> str:
    """Return who is responsible for what is created: the login name, cut to what a tag may hold."""
    try:
        login = getpass.getuser()
    except (KeyError, OSError):
        login = f"uid-{os.getuid()}"
    return re.sub(r"[^a-z0-9-]+", "-", login.lower()).strip("-")[:40] or "unknown"


class ClusterSpec(Model):
    """The cluster: which provider makes it, under which name, and that provider's own settings."""

    name: ClusterName | None = Field(None, description="the cluster's name; the provider's name when absent")
    provider: str = Field("local", description="who makes the cluster")
    owner: str = Field(
        default_factory=default_owner, description="who answers for it; every resource is born with this tag"
    )
    region: str | None = Field(None, description="where; the provider's own setting or variable when absent")
    zones: Names = Field(
        (), description="zones to try for GPU nodes, the best first; all that have the type when empty"
    )
    instance_types: Names = Field(
        (), description="kinds of GPU node to try, the best first; the provider's usual one when empty"
    )
    nodes: Annotated[PositiveInt, Field(le=MAX_NODES)] = Field(1, description="GPU nodes")
    capacity: Literal["on-demand", "spot", "spot-first"] = Field(
        "on-demand", description="how GPU nodes are paid for; spot-first takes on-demand where spot is out"
    )
    kubernetes_version: str | None = Field(None, description="the newest in standard support when absent")
    ttl: Annotated[str, AfterValidator(_duration)] | None = Field(
        None, description="how long the cluster may live, as 8h, 2d or 90m; no end when absent"
    )
    budget_usd: Annotated[float, Field(gt=0)] | None = Field(
        None, description="what the cluster may cost in all; no limit when absent"
    )
    expires: Annotated[str, AfterValidator(_moment)] | None = Field(
        None, description="when the cluster ends (UTC); worked out from ttl and budget_usd by `up`"
    )
    addons: Literal["install", "none"] = Field(
        "install", description="whether `up` also installs what a Kubernetes cluster needs to train"
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="what only this provider understands")

    @property
    def title(self) -> str:
        """The cluster's name, given or implied."""
        return self.name or self.provider


class TrainSpec(Model):
    """How a run is launched; what the model learns, and from what, is the section `trainer`."""

    name: RunName | None = Field(None, description="the run's name; made from the time when absent")
    launcher: str | None = Field(
        None, description="how processes are started; the cluster's own way when absent"
    )
    nodes: Annotated[PositiveInt, Field(le=MAX_NODES)] | None = Field(
        None, description="nodes to train on; all of the cluster's when absent"
    )
    nproc_per_node: Annotated[PositiveInt, Field(le=MAX_PROCESSES)] | None = Field(
        None, description="processes on each machine; one a GPU, or one on a machine without, when absent"
    )
    max_restarts: NonNegativeInt = Field(3, description="how often a crashed run is started again")
    image: str | None = Field(
        None, description="container image with the trainer; the one last pushed for the cluster when absent"
    )
    min_nodes: PositiveInt | None = Field(
        None,
        description="with how many nodes it may go on when some are lost; with all of them when absent",
    )
    allow_tcp: bool = Field(
        default=False, description="train even where the cluster's transport is not found"
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="what only this launcher understands")
    stop_grace_s: NonNegativeFloat = Field(120.0, description="seconds that `stop` gives a run to checkpoint")
    env: dict[str, str] = Field(default_factory=dict, description="environment variables for the trainer")


class Spec(Model):
    """Everything that the user asks for."""

    version: Literal[1] = 1
    cluster: ClusterSpec = ClusterSpec()
    train: TrainSpec = TrainSpec()
    trainer: dict[str, Any] = Field(default_factory=dict, description="the trainer's own configuration")
