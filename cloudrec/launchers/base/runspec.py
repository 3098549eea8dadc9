"""The spec of a run: the content of RUN/spec.json, written at the launch and at a resume that changes it."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec.errors import DataError, SpecError, UsageError
from cloudrec.kubernetes.client.target import ClusterTarget, PodSetup
from cloudrec.launchers.base.script_program import UserScript  # noqa: TC001 - pydantic reads it
from cloudrec.process.ray_target import RayTarget  # noqa: TC001 - pydantic reads it
from cloudrec_contract.layout import checkpoints_uri, node_range, run_uri
from cloudrec_contract.safe_json import safe_object
from cloudrec_contract.settings import SettingsError, TrainerSettings, underscored_flags, underscored_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydantic import TypeAdapter, ValidationError

SCHEMA_VERSION = 1
_OLD_NODES = "nnodes"  # the key of `nodes` in files of earlier versions
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_NAME_LIMIT = 63  # a DNS label: a run's name becomes part of pods', jobs' and services' names
_MOST = 1_000_000  # processes, nodes, restarts: more is a typing error or a damaged file
_SHOWN = 40  # characters of a wrong value
_LONGEST_S = 10 * 365 * 86_400
_LARGEST_GB = 1e9  # an exabyte
_DEAREST_USD = 1e9  # an hour
_RUN_FOLDER_ENGINES = ("local", "slurm")  # their ranks write into the run's folder, not into the storage


def default_trainer_command() -> tuple[str, ...]:
    """Return the command that starts the trainer on this machine, without its flags.

    With -P, Python does not run a `trainer.py` or a folder `trainer` of the current folder instead.
    """
    return (sys.executable, "-P", "-m", "trainer")


def is_own_trainer(command: Sequence[str]) -> bool:
    """Return whether a command starts the shipped trainer; older runs start it without -P."""
    own = default_trainer_command()
    return tuple(command) in (own, tuple(word for word in own if word != "-P"))


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One launch of the trainer by any launcher; SpecError if a value is out of range.

    Args:
        name: the run's name, a DNS label of at most 63 characters.
        cluster: the cluster it runs on.
        provider: the provider of that cluster.
        launcher: the engine that starts it.
        nproc_per_node: trainer processes on each node.
        nodes: number of nodes.
        max_restarts: how often the workers are started again after a crash.
        trainer_config: the content of trainer.yaml.
        trainer_flags: further flags for the trainer, passed verbatim; they override the file.
        trainer_command: the command that starts the trainer.
        environment: variables for the trainer, besides the launcher's own.
        stop_grace_s: seconds between the request to stop and the kill.
        storage: URI of the cluster's storage; the run's results are in STORAGE/runs/NAME.
        image: the container image with the trainer, for launchers that need one.
        setup: what pods install in it first; None if the image has the trainer.
        min_nodes: the fewest nodes with which the run continues; 0 for `nodes`.
        allow_tcp: train over TCP if the fabric that the cluster should have is not found.
        hourly_usd: price of its nodes for an hour in USD, at the launch; None if unknown, which earlier
            releases wrote as 0.
        target: how the launcher reaches the cluster; None where it needs nothing to reach it.
        settings: the settings that only this launcher reads.
        script: the user's script, if it is the program in place of the trainer.
        secrets: references for variables whose values are secret, by the variable: SECRET/KEY in Kubernetes,
            else the variable of the process that launches.
        created: time of the launch, ISO 8601.
        versions: versions of the packages on the machine that launched the run, by name.
        staged_gb: GB of the dataset that each node copies to its disk first; 0 for none, or an unknown size.
        notify: who is notified how the run ends, as `notify` of the spec; empty for no one.
        metrics_port: the port at which its metrics are served for Prometheus; 0 for none.
        elsewhere: the other clusters of several regions that the run may move to, in their order.
        trainer_settings: all settings, as the trainer has resolved them; None if the trainer is another
            program, or an earlier release launched the run. Read `trainer`, which is always set.
    """

    # For `from_json`: pydantic refuses values of other types and unknown keys.
    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }

    name: str
    cluster: str = "local"
    provider: str = "local"
    launcher: str = "local"
    nproc_per_node: int = 1
    nodes: int = 1
    max_restarts: int = 3
    trainer_config: Mapping[str, Any] = field(default_factory=dict)
    trainer_flags: tuple[str, ...] = ()
    trainer_command: tuple[str, ...] = field(default_factory=default_trainer_command)
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 60.0
    storage: str = ""
    image: str = ""
    setup: PodSetup | None = None
    min_nodes: int = 0
    allow_tcp: bool = False
    hourly_usd: float | None = None
    target: ClusterTarget | RayTarget | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    script: UserScript | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    versions: Mapping[str, str] = field(default_factory=dict)
    staged_gb: float = 0.0
    notify: Mapping[str, Any] = field(default_factory=dict)
    metrics_port: int = 0
    elsewhere: tuple[str, ...] = ()
    trainer_settings: TrainerSettings | None = None

    def __post_init__(self) -> None:
        check_run_name(self.name)
        _within("nproc_per_node", self.nproc_per_node, 1, _MOST)
        _within("nodes", self.nodes, 1, _MOST)
        _within("max_restarts", self.max_restarts, 0, _MOST)
        _within("stop_grace_s", self.stop_grace_s, 1, _LONGEST_S)
        _within("min_nodes", self.min_nodes, 0, _MOST)
        _within("metrics_port", self.metrics_port, 0, 65535)
        _within("staged_gb", self.staged_gb, 0, _LARGEST_GB)
        if self.hourly_usd is not None:
            _within("hourly_usd", self.hourly_usd, 0, _DEAREST_USD)
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise SpecError(f"{name!r} cannot be the name of an environment variable with {value!r}")
        if not self.trainer_command:
            raise SpecError("trainer_command is empty", remedy="leave it out to run the trainer shipped here")
        if is_own_trainer(self.trainer_command):  # it takes both spellings; what is kept has one
            object.__setattr__(self, "trainer_config", underscored_keys(self.trainer_config))
            object.__setattr__(self, "trainer_flags", underscored_flags(self.trainer_flags))

    @property
    def is_on_kubernetes(self) -> bool:
        """Whether the run's cluster is a Kubernetes cluster."""
        return isinstance(self.target, ClusterTarget)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.nproc_per_node * self.nodes

    @property
    def fewest_nodes(self) -> int:
        """The fewest nodes with which it continues when some are lost."""
        return self.min_nodes or self.nodes

    @property
    def node_range(self) -> str:
        """The value of torchrun's --nnodes."""
        return node_range(self.fewest_nodes, self.nodes)

    @property
    def trainer(self) -> TrainerSettings:
        """The trainer's settings: as the trainer resolved them, else from its file and flags."""
        return self.trainer_settings or TrainerSettings.asked(self.trainer_config, self.trainer_flags)

    @property
    def results(self) -> str:
        """URI of the folder of results in the cluster's storage; empty without a storage."""
        return run_uri(self.storage, self.name)

    @property
    def checkpoints(self) -> str:
        """URI of the checkpoints: the user's choice, or a folder of the results; empty without either."""
        return self.trainer.checkpoint_dir or checkpoints_uri(self.results)

    @property
    def leaves_results_in_storage(self) -> bool:
        """Whether its ranks write into the storage, rather than into the run's folder."""
        return bool(self.storage) and self.launcher not in _RUN_FOLDER_ENGINES

    def to_json(self) -> str:
        """Return the text of spec.json."""
        settings = dict(self.trainer_settings.values) if self.trainer_settings else None
        document = {"schema_version": SCHEMA_VERSION, **asdict(self), "trainer_settings": settings}
        document["target"] = document["target"] or {}
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Return the spec in the text of spec.json; DataError if it is damaged or of another version."""
        document, is_finite = _read(text)
        version = document.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise DataError(
                f"its schema version is {version!r}; this cloudrec reads {SCHEMA_VERSION}",
                remedy="use the version of cloudrec that launched the run",
            )
        if _OLD_NODES in document:
            document.setdefault("nodes", document.pop(_OLD_NODES))
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(document) - known):
            raise DataError(f"it has unknown keys: {', '.join(unknown)}")
        settings = _resolved(document.pop("trainer_settings", None))
        if document.get("target") == {}:
            document["target"] = None
        plain = _plain(document) if is_finite else None
        try:
            spec = cls(**plain) if plain is not None else _converted(document)
            return replace(spec, trainer_settings=settings)
        except UsageError as error:
            raise DataError(f"it does not describe a run: {error}") from error


def _read(text: str) -> tuple[dict[str, Any], bool]:
    """Return the object in the text of spec.json, and whether all its numbers are finite."""
    try:
        return safe_object(text), True
    except ValueError:
        try:
            return safe_object(text, numbers="any"), False  # so that the error names the key
        except ValueError as error:
            raise DataError(str(error)) from error


def _converted(document: Mapping[str, Any]) -> RunSpec:
    """Return the spec by pydantic, which converts nested records; DataError names a wrong key."""
    from pydantic import ValidationError  # noqa: PLC0415  # only where a file is read

    try:
        return _adapter().validate_json(json.dumps(document))
    except ValidationError as error:
        raise DataError(f"it does not describe a run: {_complaint(error)}") from error


def _resolved(document: object) -> TrainerSettings | None:
    """Return the resolved settings in a spec.json; None if an earlier release wrote it."""
    if document is None:
        return None
    if not isinstance(document, dict):
        raise DataError(f"trainer_settings holds a {type(document).__name__}, not an object")
    try:
        return TrainerSettings.of(document)
    except SettingsError as error:
        raise DataError(f"trainer_settings: {error}") from error


def check_run_name(name: str) -> None:
    """Raise SpecError if a run's name cannot be part of a host name."""
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
    """Return a name like dlrm-20261120-142233-ab12; four random digits distinguish runs of one second."""
    return f"{prefix}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _within(name: str, value: object, least: int, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{name} is {value!r}, which is no number")
    if not value >= least:  # NaN too
        raise SpecError(f"{name} is {value}; it must be at least {least}")
    if value > most:
        raise SpecError(f"{name} is {str(value)[:_SHOWN]}; it must be at most {most:,.0f}")


# What the JSON values of fields must be so that they need no conversion but of lists to tuples.
_TEXT = ("name", "cluster", "provider", "launcher", "storage", "image", "created")
_INTEGER = ("nproc_per_node", "nodes", "max_restarts", "min_nodes", "metrics_port")
_FLOAT = ("stop_grace_s", "staged_gb", "hourly_usd")
_OBJECT = ("trainer_config", "settings", "notify")
_TEXTS_BY_NAME = ("environment", "secrets", "versions")
_WORDS = ("trainer_flags", "trainer_command", "elsewhere")
_NESTED = ("setup", "target", "script")


def _plain(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a spec without a nested record; None if pydantic has to look at it.

    `status` reads the specs of all runs, and pydantic takes a third of its time until the first is read. Most
    specs of this machine's runs need nothing that pydantic does.
    """
    exact: Mapping[str, Callable[[Any], bool]] = {
        **dict.fromkeys(_TEXT, lambda value: type(value) is str),
        **dict.fromkeys(_INTEGER, lambda value: type(value) is int),
        **dict.fromkeys(_FLOAT, lambda value: type(value) is float),
        **dict.fromkeys(_OBJECT, lambda value: type(value) is dict),
        **dict.fromkeys(_TEXTS_BY_NAME, lambda value: type(value) is dict and _are_texts(value.values())),
        **dict.fromkeys(_WORDS, lambda value: type(value) is list and _are_texts(value)),
        **dict.fromkeys(_NESTED, lambda value: value is None),
        "allow_tcp": lambda value: type(value) is bool,
    }
    given = {name: value for name, value in document.items() if name != "hourly_usd" or value is not None}
    if "name" not in given or not all(exact[name](value) for name, value in given.items()):
        return None
    return {name: tuple(value) if name in _WORDS else value for name, value in given.items()}


def _are_texts(values: Iterable[object]) -> bool:
    return all(type(each) is str for each in values)


@cache
def _adapter() -> TypeAdapter[RunSpec]:
    from pydantic import TypeAdapter  # noqa: PLC0415  # only where a file is read

    return TypeAdapter(RunSpec)


def _complaint(error: ValidationError) -> str:
    """Return the first error of a validation: key, value and reason."""
    detail = error.errors()[0]
    key = ".".join(map(str, detail["loc"]))
    return f"{key} is {str(detail['input'])[:_SHOWN]!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
