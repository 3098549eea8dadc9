"""The spec's frozen models. What only one provider understands stays in `settings`, which it validates."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from cloudrec.spec.durations import seconds_of
from cloudrec_contract.features import parse as parse_features

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_NODES = 512  # of eight GPUs each: more is a slip of the keyboard
MAX_PROCESSES = 1024  # a process per GPU: more on one machine is a slip of the keyboard
MIN_TTL, MAX_TTL = (
    timedelta(minutes=5),
    timedelta(days=365),
)  # an end sooner or later is a slip of the keyboard
MAX_BUDGET_USD = 10_000_000
_EXISTING_MACHINES = ("local", "kubernetes")  # providers that create no nodes
MIN_AUTOSTOP = timedelta(minutes=10)
MAX_BLOCK_HOURS = 182 * 24  # half a year: more is a slip of the keyboard
_AUTOSTOP_REMEDY = "give a time such as 30m or 2h"
_TTL_REMEDY = "give a time such as 90m, 8h or 2d"
ACCESS_AUTO, ACCESS_PRIVATE = "auto", "private"
_WIDEST_ACCESS = 8  # prefix length: a wider block is the internet rather than a network
_ACCESS_REMEDY = "give auto, private, or IPv4 addresses and blocks such as 203.0.113.7,198.51.100.0/24"
_LONGEST_OWNER = 63  # characters: a Kubernetes label and a label of Google's may have no more
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_OWNER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"1\.\d{1,3}(\.\d{1,3}(-gke\.\d{1,9})?)?")


class Model(BaseModel):
    """A frozen model that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The validation context of what a user asks for now.

    Bounds hold for that alone. A stored spec was accepted once, and its cluster must stay removable, whatever
    the bounds are today.
    """


def _is_asked(info: ValidationInfo) -> bool:
    return isinstance(info.context, Asked)


HIDDEN = "cloudrec_hidden"  # the type of a complaint whose value is not shown, since it may be a secret


def refusal(reason: str, remedy: str) -> PydanticCustomError:
    """Return the complaint about a value, with its remedy, as `spec.load` reads it."""
    return PydanticCustomError("cloudrec", "{reason}", {"reason": reason, "remedy": remedy})


def own_errors(error: ValidationError) -> list[ErrorDetails]:
    """Return the errors of a validation, without those that only follow from another one.

    A default that depends on other values is not computed if one of those is wrong.
    """
    return [detail for detail in error.errors() if detail["type"] != "default_factory_not_called"]


def _label(longest: int) -> AfterValidator:
    """Accept what every cloud accepts in a name: lower-case letters, digits and inner dashes."""

    def check(value: str) -> str:
        if len(value) > longest:
            raise ValueError(f"has {len(value)} characters; {longest} is the limit")
        if not _LABEL.fullmatch(value):
            raise ValueError("may hold only a-z, 0-9 and inner dashes, as the clouds' names do")
        return value

    return AfterValidator(check)


def _ttl(value: str, info: ValidationInfo) -> str:
    try:
        seconds = seconds_of(value)
    except ValueError as error:
        raise refusal(str(error), _TTL_REMEDY) from None
    if _is_asked(info) and not MIN_TTL.total_seconds() <= seconds <= MAX_TTL.total_seconds():
        raise refusal(
            f"a cluster lives at least {MIN_TTL.seconds // 60} minutes and at most {MAX_TTL.days} days",
            _TTL_REMEDY,
        )
    return value


def _autostop(value: str, info: ValidationInfo) -> str:
    try:
        seconds = seconds_of(value)
    except ValueError as error:
        raise refusal(str(error), _AUTOSTOP_REMEDY) from None
    if _is_asked(info) and not MIN_AUTOSTOP.total_seconds() <= seconds <= MAX_TTL.total_seconds():
        raise refusal(
            f"an autostop is at least {MIN_AUTOSTOP.seconds // 60} minutes and at most {MAX_TTL.days} days",
            _AUTOSTOP_REMEDY,
        )
    return value


def _budget(value: float, info: ValidationInfo) -> float:
    if _is_asked(info) and not 0 < value <= MAX_BUDGET_USD:
        raise refusal(
            f"a budget is more than 0 and at most {MAX_BUDGET_USD:,} USD",
            "give the most that the cluster may cost in all, such as 500",
        )
    return value


def _rate(value: float, info: ValidationInfo) -> float:
    if _is_asked(info) and not 0 < value <= MAX_BUDGET_USD:
        raise refusal(
            f"a limit of the hourly cost is more than 0 and at most {MAX_BUDGET_USD:,} USD",
            "give the most that the cluster may cost in an hour, such as 50",
        )
    return value


def _owner(value: str, info: ValidationInfo) -> str:
    if not _is_asked(info):
        return value
    if len(value) > _LONGEST_OWNER or not _OWNER.fullmatch(value):
        raise refusal(
            f"an owner is a tag on every cloud: at most {_LONGEST_OWNER} of a-z, A-Z, 0-9 and inner . _ -",
            "give a short name, such as jane.doe or ranking-team",
        )
    return value


def _version(value: str, info: ValidationInfo) -> str:
    if _is_asked(info) and not _VERSION.fullmatch(value):
        raise refusal(
            "is no version of Kubernetes", "give one such as 1.34 or 1.34.2, or leave it out for the newest"
        )
    return value


def _moment(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise refusal("is no time", "give one such as 2026-12-01T18:00:00Z") from None
    if moment.tzinfo is None:
        raise refusal("has no time zone", f"end it with Z for UTC: {value}Z")
    return value


ClusterName = Annotated[str, _label(40)]  # our suffixes must still fit the clouds' 63
RunName = Annotated[str, _label(52)]  # Kubernetes adds a rank and a hash to a Job's name within 63


def _listed(value: object) -> object:
    """Accept what files hold, a list, and what one flag or variable holds: a,b."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _words(value: object) -> object:
    """Accept what files hold, a list of words, with numbers as they are written."""
    if not isinstance(value, list):
        return value
    return tuple(str(word) if isinstance(word, int | float) else word for word in value)


Arguments = Annotated[tuple[str, ...], BeforeValidator(_words)]


def _joined(value: object) -> object:
    """Accept what files hold, a list, and what one flag or variable holds: a,b."""
    is_list = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
    return ",".join(value) if is_list and isinstance(value, list | tuple) else value


def _access(value: str) -> str:
    """Return the value with each address as a block, sorted; PydanticCustomError if it is not an access."""
    parts = {part.strip() for part in value.split(",") if part.strip()}
    if not parts:
        raise refusal("it is empty", _ACCESS_REMEDY)
    if ACCESS_PRIVATE in parts and len(parts) > 1:
        raise refusal("private excludes all other values", _ACCESS_REMEDY)
    blocks = parts - {ACCESS_AUTO, ACCESS_PRIVATE}
    networks = sorted({_network(block, shown="it" if block == value else block) for block in blocks})
    if wide := [str(each) for each in networks if each.prefixlen < _WIDEST_ACCESS]:
        raise refusal(f"{wide[0]} is wider than a /{_WIDEST_ACCESS}", "list only what needs access")
    return ",".join([*sorted(parts - blocks), *map(str, networks)])


def _network(block: str, *, shown: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(block)
    except ipaddress.NetmaskValueError:
        reason = "has no valid prefix length"
    except ValueError as error:
        has_host_bits = "has host bits set" in str(error)
        reason = "has host bits set" if has_host_bits else "is no IPv4 address or block"
    raise refusal(f"{shown} {reason}", _ACCESS_REMEDY)


def default_owner() -> str:
    """Return who is responsible for what is created: the login name, cut to what a tag may hold."""
    try:
        login = getpass.getuser()
    except (KeyError, OSError):
        login = f"uid-{os.getuid()}"
    return re.sub(r"[^a-z0-9-]+", "-", login.lower()).strip("-")[:40] or "unknown"


class BlockSpec(Model):
    """A block of capacity: nodes of one type in one zone for a fixed time, paid for in advance.

    Attributes:
        id: the cloud's name of it; empty until it is bought.
        instance_type: the type of its nodes.
        nodes: its number of nodes.
        zone: the zone that it is in.
        start: when it begins, ISO 8601.
        end: when it ends, ISO 8601.
        usable_until: when the cloud begins to take its nodes back, ISO 8601.
        is_active: whether nodes could be started in it when the cloud was last asked.
        upfront_usd: what it costs, in USD; None if that is not known.
    """

    id: str = ""
    instance_type: str
    nodes: PositiveInt
    zone: str
    start: Annotated[str, AfterValidator(_moment)]
    end: Annotated[str, AfterValidator(_moment)]
    usable_until: Annotated[str, AfterValidator(_moment)]
    is_active: bool = False
    upfront_usd: float | None = None

    @property
    def hours(self) -> float:
        """Its length in hours."""
        length = datetime.fromisoformat(self.end) - datetime.fromisoformat(self.start)
        return length.total_seconds() / 3600

    @property
    def node_usd(self) -> float | None:
        """The price of one of its nodes in USD an hour of its length; None if unknown."""
        return None if self.upfront_usd is None else self.upfront_usd / (self.nodes * self.hours)


class SharedStorageSpec(Model):
    """The storage of another cluster, which the runs of a cluster use.

    Attributes:
        cluster: the name of the cluster that has it.
        region: the region that it is in.
        bucket: the name of the bucket, or of the container.
        account: the name of the storage account that has the container; empty for a bucket.
        prefix: the prefix of the bucket that runs may use; empty for the whole bucket.
        key: the ARN or the alias of the key that encrypts it, where a role must be allowed to use it; else
            empty.
    """

    cluster: str
    region: str
    bucket: str
    account: str = ""
    prefix: str = ""
    key: str = ""


def _usual_nodes(earlier: dict[str, Any]) -> int:
    """Return the default number of nodes: two where they are created, so that a run is sharded over nodes."""
    return 1 if earlier.get("provider") in _EXISTING_MACHINES else 2


NotifyEvent = Literal["finished", "failed", "preempted", "moved", "budget", "end-near", "ended"]
_EVENTS: tuple[NotifyEvent, ...] = (
    "finished",
    "failed",
    "preempted",
    "moved",
    "budget",
    "end-near",
    "ended",
)
# A variable, or a key of a Secret of Kubernetes: SECRET/KEY, or KEY of the Secret cloudrec-secrets.
_REFERENCE = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9_.-]{1,253}")
_MAIL_ADDRESS = re.compile(r"[^\s@<>,]{1,64}@[^\s@<>,]{1,255}")
_SMTP = re.compile(r"(\[[0-9a-fA-F:]{2,45}\]|[A-Za-z0-9.-]{1,253}):(\d{1,5})")
_LAST_PORT = 65535


def _reference(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        reason = "a secret is only named here, never written"
        remedy = "put the value into a variable and give its name, or SECRET/KEY of a Secret on Kubernetes"
        raise PydanticCustomError(HIDDEN, "{reason}", {"reason": reason, "remedy": remedy})
    return value


def _addresses(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if not _MAIL_ADDRESS.fullmatch(each):
            raise refusal(f"{each[:80]!r} is no address", "give addresses such as ml-team@example.com")
    return value


def _mail_server(value: str) -> str:
    found = _SMTP.fullmatch(value)
    if found is None or not 0 < int(found[2]) <= _LAST_PORT:
        raise refusal("is no HOST:PORT", "give the mail server, such as smtp.example.com:587")
    return value


def _notice_time(value: str) -> str:
    try:
        seconds_of(value)
    except ValueError as error:
        raise refusal(str(error), "give a time such as 30m or 2h") from None
    return value


SecretName = Annotated[str, AfterValidator(_reference)]


class NotifySpec(Model):
    """Who is notified what happens: `up` passes it to the cluster's keeper, and `train` to local runs."""

    webhook: SecretName | None = Field(
        None,
        description="where the URL of a webhook is: a variable of this machine for local runs; for clusters, "
        "SECRET/KEY or a key of the Secret cloudrec-secrets (docs/notifications.md)",
    )
    slack: SecretName | None = Field(
        None, description="where the URL of a webhook in Slack's format is, likewise"
    )
    email: Annotated[Names, AfterValidator(_addresses)] = Field(
        (), description="addresses that get an e-mail; it needs `smtp`"
    )
    email_from: str | None = Field(
        None, description="the address that e-mails are from; the first of `email` when absent"
    )
    smtp: Annotated[str, AfterValidator(_mail_server)] | None = Field(
        None, description="the mail server, HOST:PORT"
    )
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="how the connection to it is encrypted"
    )
    smtp_user: str | None = Field(None, description="the login at it; none when absent")
    smtp_password: SecretName | None = Field(
        None, description="where the password of this login is, as of `webhook`"
    )
    events: Annotated[tuple[NotifyEvent, ...], BeforeValidator(_listed)] = Field(
        _EVENTS, description="of what to send; of everything when absent"
    )
    end_near: Annotated[str, AfterValidator(_notice_time)] = Field(
        "30m", description="time before a cluster's end at which `end-near` is sent"
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if bool(self.email) != bool(self.smtp):
            raise refusal("notify.email and notify.smtp need each other", "give both, or leave both out")
        if bool(self.smtp_user) != bool(self.smtp_password):
            raise refusal(
                "notify.smtp_user and notify.smtp_password need each other", "give both, or leave both out"
            )
        if self.smtp_user and self.smtp_security == "none":
            raise refusal(
                "notify.smtp_security none would send the password unencrypted", "use starttls or tls"
            )
        return self

    @property
    def secrets(self) -> dict[str, str]:
        """The reference of each secret, by its key."""
        named = {"webhook": self.webhook, "slack": self.slack, "smtp_password": self.smtp_password}
        return {key: reference for key, reference in named.items() if reference is not None}

    @property
    def is_used(self) -> bool:
        """Whether there is a receiver."""
        return bool(self.webhook or self.slack or self.email)


class ClusterSpec(Model):
    """The cluster: which provider makes it, under which name, and that provider's own settings."""

    name: ClusterName | None = Field(None, description="the cluster's name; the provider's name when absent")
    provider: str = Field(
        "local", description="what creates the cluster: aws, azure, gcp, kubernetes or local"
    )
    owner: Annotated[str, AfterValidator(_owner)] = Field(
        default_factory=default_owner, description="the person or team responsible; a tag of every resource"
    )
    region: str | None = Field(
        None, description="the cloud's region; the cloud's own configuration or variable when absent"
    )
    zones: Names = Field(
        (),
        description="zones to try for GPU nodes, in order of preference; all that have the type when empty",
    )
    instance_types: Names = Field(
        (),
        description="instance types to try, in order of preference; the provider's default when empty",
    )
    nodes: Annotated[PositiveInt, Field(le=MAX_NODES)] = Field(
        default_factory=_usual_nodes,
        description="number of GPU nodes; 2 when absent, but 1 on this machine and on adopted clusters",
    )
    capacity: Literal["on-demand", "spot", "spot-first", "block", "flex-start"] = Field(
        "on-demand",
        description="capacity type of GPU nodes; spot-first takes on-demand when there is no spot capacity, "
        "block buys nodes for a fixed time in advance, flex-start waits in the cloud's queue",
    )
    block_hours: Annotated[PositiveInt, Field(le=MAX_BLOCK_HOURS)] | None = Field(
        None, description="hours of the block that `up` buys, if capacity is block"
    )
    block_start: Annotated[str, AfterValidator(_moment)] | None = Field(
        None,
        description="earliest start of that block (UTC), e.g. 2026-12-01T11:30:00Z; the next one when absent",
    )
    block: BlockSpec | None = Field(
        None, description="the block of capacity that the cluster has; computed by `up`"
    )
    storage_of: ClusterName | None = Field(
        None,
        description="the cluster whose storage the runs use, of this provider and account in any region; a "
        "separate bucket when absent",
    )
    storage: SharedStorageSpec | None = Field(
        None, description="the storage of that cluster; computed by `up`"
    )
    kubernetes_version: Annotated[str, AfterValidator(_version)] | None = Field(
        None, description="version of Kubernetes; the newest in standard support when absent"
    )
    ttl: Annotated[str, AfterValidator(_ttl)] | None = Field(
        None, description="time after which the cluster is removed, e.g. 8h, 2d or 90m; no limit when absent"
    )
    budget_usd: Annotated[float, AfterValidator(_budget)] | None = Field(
        None, description="cost in USD at which the cluster is removed; no limit when absent"
    )
    max_hourly_usd: Annotated[float, AfterValidator(_rate)] | None = Field(
        None,
        description="USD an hour that the cluster may cost with its most expensive candidate; `up` refuses "
        "more, and unknown prices; no limit when absent",
    )
    allow_tcp: bool = Field(
        default=False,
        description="create several nodes of a machine although no transport profile is for its fabric: they "
        "may train over plain TCP",
    )
    managed: bool | None = Field(
        default=None,
        description="create a pool without nodes for each candidate; the keeper in the cluster gives a run "
        "its nodes, moves it when they are taken back, and removes them after it; when absent, new clusters "
        "that may have spot nodes of one instance type are managed",
    )
    autostop: Annotated[str, AfterValidator(_autostop)] | None = Field(
        None,
        description="time without an active run after which the GPU nodes are scaled to zero, e.g. 30m; "
        "`up` brings them back; never when absent",
    )
    expires: Annotated[str, AfterValidator(_moment)] | None = Field(
        None,
        description="time at which the cluster is removed (UTC); computed by `up` from ttl and budget_usd",
    )
    end_limit: Annotated[str, AfterValidator(_moment)] | None = Field(
        None,
        description="time at which the cluster is removed whatever is left of its budget (UTC); computed by "
        "`up` from ttl or expires",
    )
    addons: Literal["install", "none"] = Field(
        "install", description="whether `up` installs the add-ons that training on Kubernetes needs"
    )
    access: Annotated[str, BeforeValidator(_joined), AfterValidator(_access)] = Field(
        ACCESS_AUTO,
        description="who reaches the Kubernetes API and the storage: auto (this machine's public address), "
        "private (only the cluster's network), or addresses and blocks such as 203.0.113.7/32",
    )
    base_image: str | None = Field(
        None,
        description="image with Python in which pods install the trainer if no image was pushed; a published "
        "one when absent",
    )
    package_index: str | None = Field(
        None,
        description="URL of the package index that these pods use, such as a mirror in a closed network; "
        "pip's own default when absent",
    )
    metrics: Literal["off", "prometheus", "managed"] = Field(
        "off",
        description="prometheus: the pods of runs and the keeper serve metrics, and are annotated for it; "
        "managed: the cloud's agent collects those of nodes and GPUs, too, for which the cloud charges",
    )
    metrics_port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        9409, description="the port at which they are served"
    )
    notify: NotifySpec | None = Field(
        None, description="who is notified what happens in the cluster; `up` takes the section `notify`"
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the provider")

    @property
    def title(self) -> str:
        """The cluster's name, given or implied."""
        return self.name or self.provider

    @property
    def access_blocks(self) -> tuple[str, ...]:
        """The blocks of addresses that `access` names, such as 203.0.113.7/32; empty for auto and private."""
        return tuple(part for part in self.access.split(",") if part not in (ACCESS_AUTO, ACCESS_PRIVATE))

    @property
    def is_private(self) -> bool:
        """Whether only the cluster's network reaches its API and its storage."""
        return self.access == ACCESS_PRIVATE

    @property
    def has_movable_end(self) -> bool:
        """Whether the end depends on what the cluster costs.

        A request of an earlier version with a ttl does not have the end of that ttl: its end stays.
        """
        return self.budget_usd is not None and (self.ttl is None or self.end_limit is not None)


class TrainSpec(Model):
    """How a run is launched; what the model learns, and from what, is the section `trainer`."""

    name: RunName | None = Field(None, description="the run's name; generated from the time when absent")
    launcher: str | None = Field(
        None, description="what starts the processes; the cluster's launcher when absent"
    )
    script: str | None = Field(
        None,
        description="your Python script to run under torchrun; cloudrec's trainer when absent",
    )
    workdir: str = Field(
        ".", description="the folder that a script gets, and runs in; .cloudrecignore and .gitignore apply"
    )
    arguments: Arguments = Field((), description="arguments of the script, before those on the command line")
    requirements: str | None = Field(
        None,
        description="file with requirements that pip installs for the script; requirements.txt of its folder "
        "when absent",
    )
    nodes: Annotated[PositiveInt, Field(le=MAX_NODES)] | None = Field(
        None, description="number of nodes to train on; all of the cluster's when absent"
    )
    nproc_per_node: Annotated[PositiveInt, Field(le=MAX_PROCESSES)] | None = Field(
        None, description="processes per node; one per GPU, or one on a node without GPUs, when absent"
    )
    max_restarts: NonNegativeInt = Field(3, description="most restarts of a run after crashes")
    image: str | None = Field(
        None,
        description="container image with the trainer; the one last pushed for the cluster when absent, or "
        "else cluster.base_image",
    )
    regions: Names = Field(
        (),
        description="regions in which the run may train, in order of preference; each has a managed cluster, "
        "and all of these use one storage (cluster.storage_of); the cluster's alone when empty",
    )
    min_nodes: PositiveInt | None = Field(
        None,
        description="continue with at least this many nodes if some are lost; with all of them when absent",
    )
    allow_tcp: bool = Field(
        default=False, description="train even if the cluster's fast transport is not found"
    )
    data_tier: Literal["auto", "local", "lustre", "bucket"] = Field(
        "auto",
        description="from where nodes read a dataset in an object store: local (their own disks, to which "
        "it is copied first), lustre, bucket (mounted with a cache), or auto: the first with room",
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the launcher")
    metrics_port: Annotated[int, Field(ge=1024, le=65535)] | None = Field(
        None,
        description="port at which the run's metrics are served for Prometheus, on this machine by loopback "
        "only; of a cluster with cluster.metrics, its port, and else none, when absent",
    )
    stop_grace_s: NonNegativeFloat = Field(
        120.0, description="grace period of `stop`, in seconds, in which a run saves a checkpoint"
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="environment variables for the trainer or the script"
    )
    env_file: Names = Field(
        (), description="files with lines NAME=VALUE, whose variables come before those of `env`"
    )
    secrets: dict[str, str] = Field(
        default_factory=dict,
        description="variables whose values are secret, each with its source: SECRET/KEY in Kubernetes (KEY "
        "alone is a key of the Secret cloudrec-secrets), else a variable of the environment of `train`",
    )


class Spec(Model):
    """Everything that the user asks for."""

    version: Literal[1] = 1
    cluster: ClusterSpec = ClusterSpec()
    train: TrainSpec = TrainSpec()
    notify: NotifySpec = Field(
        default_factory=NotifySpec, description="who is notified when runs end, and of costs and moves"
    )
    trainer: dict[str, Any] = Field(default_factory=dict, description="the trainer's own configuration")
    features: dict[str, Any] | None = Field(
        None,
        description="the label, the dense and the sparse features of your files, for `data prepare` "
        "(docs/features.md); without it, they are Criteo's",
    )

    @property
    def asked_cluster(self) -> ClusterSpec:
        """The section `cluster`, with who is notified what happens in it."""
        if not self.notify.is_used:
            return self.cluster
        return self.cluster.model_copy(update={"notify": self.notify})

    @field_validator("features")
    @classmethod
    def _are_a_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            parse_features(value, read=lambda _file: {"-": 0})  # `data prepare` reads the files of lookups
        return value
