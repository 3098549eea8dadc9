"""The command line of `python -m trainer`: flags made from the configuration's fields, over its file."""

from __future__ import annotations

import argparse
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, NoReturn, get_args, get_origin

from pydantic import ValidationError

from cloudrec_contract.exit_codes import BAD_CONFIG, BAD_DATA, FAILED, FINISHED, PEER_LOST, STOPPED
from cloudrec_contract.settings import underscored_flags, underscored_keys
from trainer.base.config import GROUPS, SWITCH, TrainerConfig
from trainer.base.errors import ConfigError
from trainer.base.safe_yaml import safe_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic.fields import FieldInfo


_LARGEST = 1 << 20  # bytes of a configuration file
_ADAGRAD_EPS = 1e-10  # of torch.optim.Adagrad and of torchrec's RowWiseAdagrad
_OTHER_SPELLINGS = {"num_embeddings": "num_embeddings_per_feature", "batch_size": "global_batch_size"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parsed command line."""

    config: TrainerConfig
    check_only: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; `python -m trainer --help` lists the flags")


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Merge the flags over the file over the defaults; ConfigError names the first problem."""
    parser = _make_parser()
    given, unknown = parser.parse_known_args(underscored_flags(argv))
    if unknown:
        raise ConfigError(_unknown_flag(unknown[0]))
    flags = {name: value for name, value in vars(given).items() if value is not None}
    check_only = flags.pop("check_config", False)
    path = flags.pop("config", None)
    values = (read_config_file(Path(path)) if path else {}) | {
        name: _split_list(name, value) for name, value in flags.items()
    }
    return Arguments(config=make_config(values), check_only=check_only)


def make_config(values: Mapping[str, Any]) -> TrainerConfig:
    """Validate settings; one ConfigError names every problem with its key, value and limit."""
    for name in values:
        if name not in TrainerConfig.model_fields:
            raise ConfigError(f"unknown key {name!r} in the configuration{_nearest(name)}")
    try:
        return TrainerConfig.model_validate(with_preset(values))
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(problem) for problem in error.errors())) from None


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of their preset for the keys that are not given."""
    if values.get("preset") != "golden":
        return dict(values)
    given = {key for key, value in values.items() if value is not None}
    defaults = _golden(values.get("embedding_dim") or 128)
    return {key: value for key, value in defaults.items() if _OTHER_SPELLINGS.get(key) not in given} | dict(
        values
    )


def _golden(embedding_dim: object) -> dict[str, Any]:
    """Return the defaults of torchrec's examples/golden_training/train_dlrm.py."""
    return {
        "num_embeddings": 1024**2,
        "embedding_dim": embedding_dim,
        "dense_arch_layer_sizes": [64, embedding_dim],
        "over_arch_layer_sizes": [64, 1],
        "batch_size": 32,
        "num_iterations": 1000,
        "table_optimizer": "rowwise_adagrad",
        "learning_rate": 0.1,
        "dense_optimizer": "adagrad",
        "dense_learning_rate": 0.1,
        "optimizer_eps": _ADAGRAD_EPS,
        "lr_decay": "none",
        "qcomm_forward_precision": "fp16",
        "qcomm_backward_precision": "bf16",
    }


def read_config_file(path: Path) -> dict[str, Any]:
    """Read a TOML or YAML file of flat keys (either spelling: batch_size, batch-size)."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error}") from error
    if len(data) > _LARGEST:
        raise ConfigError(f"the configuration file {path} is larger than {_LARGEST:,} bytes")
    try:
        content = tomllib.loads(text) if path.suffix == ".toml" else safe_yaml(text)  # noqa: TID251 - the limits are checked around it
    except (ConfigError, RecursionError, ValueError) as error:
        raise ConfigError(
            f"the configuration file {path} cannot be parsed: {' '.join(str(error).split())}"
        ) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"the configuration file {path} holds a {type(content).__name__}; it must hold keys and values"
        )
    return underscored_keys(content)


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m trainer",
        description="Train a sharded DLRM. Alone it is one rank; under torchrun, one of WORLD_SIZE.",
        epilog=f"Exit codes: {FINISHED} finished, {STOPPED} stopped with a committed checkpoint (start it "
        f"again to resume), {PEER_LOST} another rank was lost (start it again), {BAD_CONFIG} bad "
        f"configuration, {BAD_DATA} bad data, {FAILED} anything else.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", metavar="FILE", help="TOML or YAML file with keys named like the flags below"
    )
    parser.add_argument(
        "--check_config",
        action="store_true",
        help="print the resolved configuration as JSON and end (0, or 64)",
    )
    for group in GROUPS:
        section = parser.add_argument_group((group.__doc__ or "").rstrip("."))
        for name in group.__annotations__:
            _add_flag(section, name, group.model_fields[name])
    return parser


def _add_flag(section: argparse._ArgumentGroup, name: str, field: FieldInfo) -> None:
    default = "" if field.default is None else f" [{_spell(field.default)}]"
    text = f"{field.description}{default}".replace("%", "%%")
    extra = field.json_schema_extra
    if isinstance(extra, dict) and extra.get(SWITCH):
        choices = _metavar(field.annotation)
        section.add_argument(f"--{name}", nargs="?", const="on", metavar=choices, help=text)
        section.add_argument(
            f"--no_{name}", dest=name, action="store_const", const="off", help=argparse.SUPPRESS
        )
    elif field.annotation is bool:
        section.add_argument(f"--{name}", nargs="?", const="true", metavar="BOOL", help=text)
        section.add_argument(
            f"--no_{name}", dest=name, action="store_const", const="false", help=argparse.SUPPRESS
        )
    else:
        section.add_argument(f"--{name}", metavar=_metavar(field.annotation), help=text)


def _metavar(annotation: Any) -> str:  # noqa: ANN401 - an annotation can be any type form
    for part in _flatten(annotation):
        if part is tuple:
            return "A,B,..."
        if isinstance(part, str):
            return "|".join(str(choice) for choice in _flatten(annotation) if isinstance(choice, str))
    return {int: "N", float: "X"}.get(next(iter(_flatten(annotation))), "TEXT")


def _flatten(annotation: Any) -> list[Any]:  # noqa: ANN401 - an annotation can be any type form
    origin = get_origin(annotation)
    if origin is tuple:
        return [tuple]
    if origin is None and not isinstance(annotation, UnionType):
        return [annotation]
    return [leaf for part in get_args(annotation) for leaf in _flatten(part)]


def _spell(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _split_list(name: str, value: str) -> Any:  # noqa: ANN401 - JSON can be anything
    if get_origin(TrainerConfig.model_fields[name].annotation) is dict:
        try:
            return safe_yaml(value)
        except ConfigError as error:
            raise ConfigError(f"--{name} cannot be parsed as JSON: {' '.join(str(error).split())}") from error
    if tuple in _flatten(TrainerConfig.model_fields[name].annotation):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _unknown_flag(word: str) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}; every setting is a flag, as in --batch_size 1024"
    name = word.lstrip("-").partition("=")[0]
    return f"unknown flag --{name}{_nearest(name)}"


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(
        name, [*TrainerConfig.model_fields, "config", "check_config"], n=1, cutoff=0.5
    )
    return f"; did you mean {close[0]}?" if close else "; `python -m trainer --help` lists them"


def _explain(problem: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails is a TypedDict of mixed values
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    key = str(problem["loc"][0])
    value = problem["input"]
    shown = ",".join(map(str, value)) if isinstance(value, list) else value
    return f"{key}: {message[0].lower()}{message[1:]}, but it is {shown!r}"
