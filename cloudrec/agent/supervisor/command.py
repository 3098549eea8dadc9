"""Parses and completes the command of a pod's manifest: torchrun TORCHRUN-FLAGS ... rank -- TRAINER FLAGS."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec_contract.settings import TrainerSettings, flag_value, underscored_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launcher")
_MANY = "1000000"  # restarts: the agent, not torchrun, counts them, since only crashes count


@dataclass(frozen=True, kw_only=True)
class TorchrunCommand:
    """A manifest's command in two parts.

    Args:
        torchrun: torchrun's arguments, up to the first --.
        trainer: the trainer's command and its flags.
    """

    torchrun: tuple[str, ...]
    trainer: tuple[str, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> TorchrunCommand:
        """Return the parts of a command; UsageError if it does not start torchrun."""
        rest = _without_program(words)
        if "--" not in rest:
            raise UsageError(
                "the command has no -- before the trainer",
                remedy="it is: torchrun FLAGS --no-python python -P -m cloudrec.agent rank -- TRAINER FLAGS",
            )
        position = rest.index("--")
        return cls(torchrun=tuple(rest[:position]), trainer=tuple(rest[position + 1 :]))

    def settings(self) -> TrainerSettings:
        """Return the trainer's settings, from its flags and its configuration file."""
        return TrainerSettings.asked(self.config(), self.trainer)

    def config(self) -> dict[str, Any]:
        """Return the configuration in the file of the trainer's --config; {} if it cannot be read."""
        from cloudrec.safe_yaml import limited_text, safe_yaml  # noqa: PLC0415 - only the agent needs it

        path = flag_value(self.trainer, "config")
        try:
            text = limited_text(Path(path)) if path else ""
            document = safe_yaml(text, where=str(path), error=UsageError).value
        except (OSError, ValueError, UsageError):
            return {}  # the trainer reports the error
        if not isinstance(document, dict):
            return {}
        return underscored_keys(document)

    @property
    def is_own_trainer(self) -> bool:
        """Whether it starts the shipped trainer."""
        return ("-m", "trainer") in pairwise(self.trainer)

    def with_setting(self, name: str, value: str) -> TorchrunCommand:
        """Return the command with one more flag for the trainer, which overrides earlier ones."""
        return replace(self, trainer=(*self.trainer, f"--{name}", value))

    def endpoint(self) -> str:
        """Return the address and port of the rendezvous; empty if the command has none."""
        return flag_value(self.torchrun, "rdzv_endpoint") or ""

    def own_endpoint(self) -> str:
        """Return the address and port at which this pod would host the rendezvous; empty if unknown."""
        here = flag_value(self.torchrun, "local_addr")
        return f"{here}:{self.endpoint().rpartition(':')[2]}" if here and self.endpoint() else ""

    def words(self, endpoint: str = "") -> list[str]:
        """Return the command that this pod starts: torchrun in a wrapper that ends with the agent.

        Args:
            endpoint: the address and port of the rendezvous; empty for the one in the command.
        """
        elastic = (sys.executable, "-P", "-m", "cloudrec.launchers.local.elastic")
        torchrun = _with_role(self._meeting_at(endpoint) if endpoint else self.torchrun)
        return [*elastic, *_unlimited(torchrun), "--", *self.trainer]

    def _meeting_at(self, endpoint: str) -> tuple[str, ...]:
        return ("--rdzv-endpoint", endpoint, *_without(self.torchrun, "rdzv-endpoint"))


def _with_role(torchrun: tuple[str, ...]) -> tuple[str, ...]:
    """Return torchrun's arguments, with whether this node hosts the rendezvous."""
    # Otherwise torch compares addresses by DNS, which may not have this pod's name yet.
    endpoint, here = flag_value(torchrun, "rdzv_endpoint"), flag_value(torchrun, "local_addr")
    settings = flag_value(torchrun, "rdzv_conf") or ""
    if not endpoint or not here or "is_host=" in settings:
        return torchrun
    host = endpoint.rpartition(":")[0] or endpoint
    role = f"is_host={int(here == host or here.startswith(f'{host}.'))}"
    return (
        "--rdzv-conf",
        f"{settings},{role}" if settings else role,
        *_without(torchrun, "rdzv-conf"),
    )


def _without_program(words: Sequence[str]) -> list[str]:
    if words and Path(words[0]).name == "torchrun":
        return list(words[1:])
    for position, word in enumerate(words[:-1]):
        if word == "-m" and words[position + 1] in _TORCHRUN_MODULES:
            return list(words[position + 2 :])
    program = words[0] if words else ""
    raise UsageError(
        f"the command begins with {program!r}, and the agent starts only torchrun",
        remedy="it is: agent -- torchrun FLAGS ...",
    )


def _unlimited(torchrun: tuple[str, ...]) -> list[str]:
    """Return torchrun's arguments without a limit of restarts."""
    return ["--max-restarts", _MANY, *_without(torchrun, "max-restarts")]


def _without(words: tuple[str, ...], name: str) -> list[str]:
    """Return arguments without a flag and its value."""
    kept, skip = [], False
    for word in words:
        key, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif key.replace("_", "-") == f"--{name}":
            skip = not equals
        else:
            kept.append(word)
    return kept
