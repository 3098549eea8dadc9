"""The settings `train.settings` of the launcher `slurm`."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from cloudrec.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORD = re.compile(r"[^\s'\"#\\]+")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_HOST = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*@)?[A-Za-z0-9_][A-Za-z0-9._:-]*")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d{1,2}))?(?::(\d{1,2}))?")
_OURS = (
    *("account", "array", "constraint", "cpus-per-task", "error", "gpus-per-node", "gres", "job-name"),
    *("nodes", "no-requeue", "ntasks", "ntasks-per-node", "open-mode", "output", "parsable", "partition"),
    *("qos", "requeue", "signal", "test-only", "time", "wait", "wrap", "mem", "chdir"),
)


def _word(text: str) -> str:
    if text and not _WORD.fullmatch(text):
        raise ValueError("may contain no space, quote, backslash or #, which sbatch would interpret")
    return text


def _host(text: str) -> str:
    if text and not _HOST.fullmatch(text):
        raise ValueError("is no user@host")
    return text


def _time(text: str) -> str:
    if text:
        seconds_of(text)
    return text


def _options(given: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for name, value in given.items():
        if name in _OURS:
            raise ValueError(f"names {name}, which is set by cloudrec or has its own setting")
        if not _OPTION.fullmatch(name):
            raise ValueError(f"names {name!r}; an option of sbatch is a word such as mail-type")
        _word(str(value))
    return given


Word = Annotated[str, AfterValidator(_word)]


def seconds_of(limit: str) -> float:
    """Return a time limit in seconds: minutes, H:MM:SS, MM:SS, D-H, D-H:MM:SS, or UNLIMITED.

    ValueError if the text is no time limit.
    """
    if limit.lower() in ("infinite", "unlimited"):
        return float("inf")
    found = _TIME.fullmatch(limit)
    if found is None:
        raise ValueError("is no time of Slurm's such as 90 (minutes), 2:30:00 or 1-12")
    days, first, second, third = (int(each) if each else None for each in found.groups())
    if days is not None:
        return float(days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0))
    if third is not None:
        return float((first or 0) * 3600 + (second or 0) * 60 + third)
    return float((first or 0) * 60 + (second or 0))


class SlurmSettings(BaseModel):
    """The options of a run's job; Slurm decides about those that are empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    host: Annotated[str, AfterValidator(_host)] = Field(
        "", description="the login node as user@host, reached by ssh; this machine when empty"
    )
    ssh_config: str = Field("", description="ssh's file of settings, in place of the user's own")
    partition: Word = Field("", description="partition; Slurm's default one when empty")
    account: Word = Field("", description="account that pays")
    qos: Word = Field("", description="quality of service")
    time_limit: Annotated[str, AfterValidator(_time)] = Field(
        "", description="time limit as Slurm writes it (90, 2:30:00, 1-12); the partition's when empty"
    )
    gpus_per_node: NonNegativeInt | None = Field(
        None, description="GPUs of each node; as many as processes where the nodes have some, when absent"
    )
    gpu_type: Word = Field("", description="kind of GPU, as the nodes' gres names it")
    cpus_per_node: PositiveInt | None = Field(
        None, description="cores of each node; one for each process when absent"
    )
    memory_gib: NonNegativeInt = Field(0, description="memory of each node, GiB; Slurm's default when 0")
    exclusive: bool = Field(default=False, description="whether no other job may share the nodes")
    constraint: Word = Field("", description="features that nodes must have")
    requeue: bool = Field(
        default=True, description="continue by itself after a preemption, a lost node or the end of its time"
    )
    container_image: Word = Field("", description="image that tasks run in; none when empty")
    container_runtime: Literal["pyxis", "apptainer"] = Field(
        "pyxis", description="who starts it: pyxis (enroot), or apptainer"
    )
    container_mounts: Word = Field("", description="more folders for it, FROM:TO,FROM:TO")
    python: Word = Field("", description="the Python that has cloudrec and the trainer, on the nodes")
    folder: Word = Field("", description="shared folder below which runs write; CLOUDREC_HOME when empty")
    scratch: Word = Field("", description="a node's own folder for scratch files; TMPDIR when empty")
    extra: Annotated[dict[str, str | int | bool], AfterValidator(_options)] = Field(
        default_factory=dict, description="more options of sbatch by their long names, without --"
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SlurmSettings:
        """Return the settings in a document; SpecError for an unknown name or a wrong value."""
        for name in given:
            if name not in cls.model_fields:
                near = difflib.get_close_matches(name, cls.model_fields, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise SpecError(
                    f"train.settings has {name!r}, which the launcher slurm does not know",
                    remedy=f"{hint}it knows: {', '.join(sorted(cls.model_fields))}",
                )
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            words = first["msg"].removeprefix("Value error, ")
            raise SpecError(f"train.settings.{name} is {first.get('input')!r}: {words}") from error
