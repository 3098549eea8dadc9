"""The trainer's settings, for all code outside the trainer.

A setting has one name and two spellings, `batch_size` and `batch-size`; only `underscored` knows this.
`TrainerSettings` has one of two origins:

- the shipped trainer resolves its settings: `python -m trainer --check_config` prints them as JSON;
- any other program cannot be queried, so only its configuration and flags are known.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it in the dataclass below
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Sequence

PATHS = ("dataset_path", "checkpoint_dir", "checkpoint_near_dir", "init_from", "sharding_plan")
"""The settings whose values are paths or URIs."""


class SettingsError(ValueError):
    """A document is not a valid output of `--check_config`."""


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """The settings of one launch of a trainer.

    Args:
        dataset_path: path or URI of the data; empty if none is set.
        checkpoint_dir: path or URI of the checkpoints; empty if the launcher chooses it.
        values: every given setting, by its name with underscores; unknown names are kept.
    """

    dataset_path: str = ""
    checkpoint_dir: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings in a mapping; SettingsError if a path is not a text."""
        for name in ("dataset_path", "checkpoint_dir"):
            if not isinstance(values.get(name), str | None):
                raise SettingsError(f"{name} is {values[name]!r}; it must be a path or a URI")
        return cls(
            dataset_path=values.get("dataset_path") or "",
            checkpoint_dir=values.get("checkpoint_dir") or "",
            values=dict(values),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the output of `--check_config`; SettingsError if it is not a JSON object of settings."""
        try:
            document = safe_object(text)
        except ValueError as error:
            raise SettingsError(str(error)) from error
        return cls.of(document)

    @classmethod
    def asked(cls, config: Mapping[str, Any], flags: Sequence[str]) -> Self:
        """Return the settings in a configuration and flags, for a program that cannot be queried.

        Args:
            config: the content of the configuration file, in either spelling.
            flags: `--name VALUE` or `--name=VALUE`, in either spelling; they replace the file's, the last one
                counts.
        """
        values = underscored_keys(config)
        names = {underscored(word)[2:].partition("=")[0] for word in flags if word.startswith("--")}
        values |= {name: flag_value(flags, name) for name in sorted(names)}
        places = {name: str(values[name]) for name in ("dataset_path", "checkpoint_dir") if values.get(name)}
        return cls.of(values | places)

    @property
    def init_from(self) -> str:
        """Path or URI of the earlier model that the run begins with; empty if there is none."""
        value = self.values.get("init_from")
        return value if isinstance(value, str) else ""

    def with_values(self, **changed: object) -> Self:
        """Return the settings with some values changed."""
        return replace(self, **vars(type(self).of({**self.values, **changed})))

    def samples_a_step(self, *, ranks: int) -> int | None:
        """Return the samples of a step over all ranks; None if the settings do not contain it."""
        whole, each = self.values.get("global_batch_size"), self.values.get("batch_size")
        if isinstance(whole, int) and whole:
            return whole
        return each * ranks if isinstance(each, int) else None


def underscored(word: str) -> str:
    """Return the name of a setting, or a flag up to its `=`, with underscores: `--batch-size=8`."""
    name, equals, value = word.partition("=")
    dashes = "--" if name.startswith("--") else ""
    return dashes + name[len(dashes) :].replace("-", "_") + equals + value


def underscored_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with its names in underscores; of two spellings the later one counts."""
    return {underscored(str(name)): value for name, value in config.items()}


def underscored_flags(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with the names of its flags in underscores, and its values as they are."""
    return tuple(underscored(word) if word.startswith("--") else word for word in words)


def flag_value(words: Sequence[str], name: str) -> str | None:
    """Return the value that the last `--name VALUE` or `--name=VALUE` gives, in either spelling."""
    value = None
    for position, word in enumerate(words):
        key, equals, given = word.partition("=")
        if key.startswith("--") and underscored(key)[2:] == name:
            value = given if equals else next(iter(words[position + 1 : position + 2]), None)
    return value
