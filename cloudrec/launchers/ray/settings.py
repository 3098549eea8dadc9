"""The settings `train.settings` of the launcher `ray`, and the address of a run's Ray cluster."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from cloudrec.errors import SpecError
from cloudrec.process.ray_target import RayTarget
from cloudrec.spec.load import validated
from cloudrec.spec.models import Model

if TYPE_CHECKING:
    from cloudrec.launchers.base.runspec import RunSpec

DASHBOARD_PORT = 8265
JOB = "CLOUDREC_JOB"  # the variable with the job's id, for its agents


class RaySettings(Model):
    """`train.settings` for Ray."""

    address: str = Field("", description="the head's dashboard, http://HEAD:8265; its own head when absent")
    auth: Literal["token", "none"] = Field("token", description="none: use a cluster that asks for no token")
    token_file: str = Field("", description="file with the token; where Ray itself looks for it when absent")
    storage: str = Field(
        "", description="URI or path that every node sees; the cluster's storage when absent"
    )
    gpus_per_node: NonNegativeInt | None = Field(
        None, description="GPUs on each node; one a process where the cluster has any, when absent"
    )
    cpus_per_node: PositiveFloat | None = Field(
        None, description="cores on each node; one a process when absent"
    )
    working_dir: str = Field(
        "", description="folder that is sent along, and is the current one of each process"
    )
    excludes: list[str] = Field(default_factory=list, description="what is not sent, such as *.parquet")
    working_dir_limit_mb: PositiveFloat = Field(100.0, description="above which the folder is not sent")
    requirements: list[str] | str = Field(
        default_factory=list, description="for pip: a list of requirements, or a requirements.txt"
    )
    send_code: bool = Field(
        default=True, description="send cloudrec and its trainer along, whatever the nodes have"
    )
    python: str = Field("python", description="what starts Python on the head")
    lost_after_s: PositiveFloat = Field(
        60.0, description="seconds after which a head that does not answer is lost, and the run with it"
    )
    wait_s: NonNegativeFloat = Field(
        300.0, description="seconds to wait for nodes; 0 for as long as it takes"
    )

    @classmethod
    def of(cls, spec: RunSpec) -> RaySettings:
        """Return the settings of a run; SpecError for an unknown name or a wrong type."""
        try:
            return validated(cls, dict(spec.settings), {})
        except SpecError as error:
            known = ", ".join(sorted(cls.model_fields))
            remedy = error.remedy or f"the launcher ray knows: {known}"
            raise SpecError(f"train.settings: {error.message}", remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class Head:
    """A Ray cluster's head.

    Attributes:
        url: the URL of its dashboard, without a slash at the end.
        auth: "token", or "none" if the cluster may work without a token.
        token_file: the file with the token; empty for the places where Ray looks.
    """

    url: str
    auth: str = "token"
    token_file: str = ""

    @property
    def address(self) -> str:
        """Host and port, as in a run's id."""
        return urlsplit(self.url).netloc

    @property
    def is_here(self) -> bool:
        """Whether its address is a loopback one, so only this machine can reach it."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def named_head(spec: RunSpec) -> Head | None:
    """Return the head that the run's settings or its cluster name; None if the run starts one."""
    settings = RaySettings.of(spec)
    if settings.address:
        return Head(url=_url(settings.address), auth=settings.auth, token_file=settings.token_file)
    if isinstance(spec.target, RayTarget):
        return Head(url=_url(spec.target.ray_address), token_file=spec.target.ray_token_file)
    return None


def _url(address: str) -> str:
    """Return the URL of a dashboard; SpecError if the address is none."""
    text = address if "://" in address else f"http://{address}"
    parts = urlsplit(text)
    try:
        port = parts.port or DASHBOARD_PORT
    except ValueError:
        port = 0
    if parts.scheme == "ray":
        raise SpecError(
            f"{address!r} is the address of a Ray client, not of a dashboard",
            remedy=f"name the dashboard: --set train.settings.address=http://{parts.hostname}:{DASHBOARD_PORT}",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not port or parts.path.strip("/"):
        raise SpecError(
            f"{address!r} is not the address of a Ray dashboard",
            remedy=f"it is http://HEAD:{DASHBOARD_PORT}",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def working_dir_of(settings: RaySettings) -> Path | None:
    """Return the folder to send, None without one; SpecError if it is not a folder."""
    if not settings.working_dir:
        return None
    path = Path(settings.working_dir).expanduser().absolute()
    if not path.is_dir():
        raise SpecError(
            f"train.settings.working_dir: there is no folder {path}", remedy="name the folder to send along"
        )
    return path
