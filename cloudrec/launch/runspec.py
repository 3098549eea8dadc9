"""What was asked for when a run was launched, or resumed with other processes: RUN/spec.json's content."""

from __future__ import annotations

import json
import re
import secrets
import sys
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.errors import DataError, SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_VERSION = 1
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_NAME_LIMIT = 63  # a DNS label: a run's name becomes part of pods', jobs' and services' names


def default_trainer_command() -> tuple[str, ...]:
    """Return the command that starts the trainer on this machine, without its flags."""
    return (sys.executable, "-m", "trainer")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One launch of the trainer, whatever the launcher; SpecError when a value cannot be.

    Args:
        name: the run's name, a DNS label of at most 63 characters.
        cluster: the cluster it runs on.
        provider: the provider of that cluster.
        launcher: the engine that starts it.
        nproc_per_node: trainer processes on each node.
        nnodes: nodes.
        max_restarts: how often the workers are started again after a crash.
        trainer_config: what becomes trainer.yaml.
        trainer_flags: more flags for the trainer, passed verbatim; they beat the file.
        trainer_command: the program that is the trainer.
        environment: variables for the trainer, on top of the launcher's own.
        stop_grace_s: seconds between the request to stop and the kill.
        storage: URI of the cluster's storage; what the run leaves goes to STORAGE/runs/NAME.
        image: the container image with the trainer, for launchers that need one.
        min_nodes: with how many nodes it may go on when some are lost; 0: with as many as it began.
        allow_tcp: train even where the transport that the cluster is meant to have is not found.
        hourly_usd: what its nodes cost an hour, when it was launched.
        target: the cluster as this launcher must know it, such as `kube.target.Target`.
        settings: what only this launcher understands.
        created: when, ISO 8601.
        versions: what was installed where it was launched.
    """

    name: str
    cluster: str = "local"
    provider: str = "local"
    launcher: str = "local"
    nproc_per_node: int = 1
    nnodes: int = 1
    max_restarts: int = 3
    trainer_config: Mapping[str, Any] = field(default_factory=dict)
    trainer_flags: tuple[str, ...] = ()
    trainer_command: tuple[str, ...] = field(default_factory=default_trainer_command)
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 60.0
    storage: str = ""
    image: str = ""
    min_nodes: int = 0
    allow_tcp: bool = False
    hourly_usd: float = 0.0
    target: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_run_name(self.name)
        _at_least("nproc_per_node", self.nproc_per_node, 1)
        _at_least("nnodes", self.nnodes, 1)
        _at_least("max_restarts", self.max_restarts, 0)
        _at_least("stop_grace_s", self.stop_grace_s, 1)
        _at_least("min_nodes", self.min_nodes, 0)
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise SpecError(f"{name!r} cannot be the name of an environment variable with {value!r}")
        if not self.trainer_command:
            raise SpecError("trainer_command is empty", remedy="leave it out to run the trainer shipped here")

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.nproc_per_node * self.nnodes

    def to_json(self) -> str:
        """Return the text of spec.json."""
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Read spec.json back; DataError when it is damaged or another version's."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise DataError(f"it is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise DataError(f"it holds a {type(document).__name__}, not an object")
        version = document.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise DataError(
                f"its schema version is {version!r}; this cloudrec reads {SCHEMA_VERSION}",
                remedy="use the version of cloudrec that launched the run",
            )
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(document) - known):
            raise DataError(f"it has unknown keys: {', '.join(unknown)}")
        try:
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items()}
            return cls(**values)
        except (TypeError, UsageError) as error:
            raise DataError(f"it does not describe a run: {error}") from error


def check_run_name(name: str) -> None:
    """Refuse a name that cannot be part of a host name, with SpecError."""
    if len(name) > _NAME_LIMIT:
        raise SpecError(
            f"the run's name {name!r} has {len(name)} characters; the limit is {_NAME_LIMIT}",
            remedy="choose a shorter one with --name",
        )
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"the run's name {name!r} cannot be used",
            remedy="use lower-case letters, digits and '-', with a letter or a digit at both ends",
        )


def new_run_name(now: datetime, *, prefix: str = "dlrm") -> str:
    """Return a name like dlrm-20261120-142233-ab12; four random digits tell runs of one second apart."""
    return f"{prefix}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _at_least(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} is {value!r}, which is no number")
    if not value >= minimum:  # NaN too
        raise SpecError(f"{name} is {value}; it must be at least {minimum}")
