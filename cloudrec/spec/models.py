"""The spec's frozen models. What only one provider understands stays in `settings`, which it validates."""

from __future__ import annotations

import getpass
import os
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)

MAX_PROCESSES = 1024  # a process per GPU: more on one machine is a slip of the keyboard
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


ClusterName = Annotated[str, _label(40)]  # suffixes of ours must still fit the clouds' 63
RunName = Annotated[str, _label(52)]  # Kubernetes adds a rank and a hash to a Job's name within 63


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
    nproc_per_node: Annotated[PositiveInt, Field(le=MAX_PROCESSES)] | None = Field(
        None, description="processes on each machine; one a GPU, or one on a machine without, when absent"
    )
    max_restarts: NonNegativeInt = Field(3, description="how often a crashed run is started again")
    stop_grace_s: NonNegativeFloat = Field(120.0, description="seconds that `stop` gives a run to checkpoint")
    env: dict[str, str] = Field(default_factory=dict, description="environment variables for the trainer")


class Spec(Model):
    """Everything that the user asks for."""

    version: Literal[1] = 1
    cluster: ClusterSpec = ClusterSpec()
    train: TrainSpec = TrainSpec()
    trainer: dict[str, Any] = Field(default_factory=dict, description="the trainer's own configuration")
