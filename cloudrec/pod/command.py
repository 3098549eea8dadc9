"""The command of a pod's manifest, as this pod runs it: torchrun TORCHRUN-FLAGS ... rank -- TRAINER FLAGS."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.launch.outputs import flag_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launcher")
_MANY = "1000000"  # restarts: which of them count is for the agent to say, not for torchrun


@dataclass(frozen=True, kw_only=True)
class Command:
    """A manifest's command in its two parts.

    Args:
        torchrun: torchrun's own words, without the program's name, up to the last -- if there is one.
        trainer: the trainer and its flags.
    """

    torchrun: tuple[str, ...]
    trainer: tuple[str, ...]

    @classmethod
    def parse(cls, words: Sequence[str]) -> Command:
        """Take a command apart; UsageError when it does not start torchrun."""
        rest = _without_program(words)
        if "--" not in rest:
            raise UsageError(
                "the command has no -- before the trainer",
                remedy="it is: torchrun FLAGS --no-python python -m cloudrec.pod rank -- TRAINER FLAGS",
            )
        position = rest.index("--")
        return cls(torchrun=tuple(rest[:position]), trainer=tuple(rest[position + 1 :]))

    def setting(self, name: str) -> str | None:
        """Return what the trainer would take for a setting: its flag, or else its file's."""
        given = flag_value(self.trainer, name)
        if given is not None:
            return given
        value = self.config().get(name)
        return None if value is None else str(value)

    def config(self) -> dict[str, Any]:
        """Read the file that the trainer's --config names; {} where there is none to be read."""
        import yaml  # noqa: PLC0415 - only the agent needs it

        path = flag_value(self.trainer, "config")
        try:
            document = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if path else {}
        except (OSError, ValueError, yaml.YAMLError):
            return {}  # the trainer tells what is wrong with it
        if not isinstance(document, dict):
            return {}
        return {str(name).replace("-", "_"): value for name, value in document.items()}

    def with_setting(self, name: str, value: str) -> Command:
        """Return it with one more flag for the trainer, which beats those before it."""
        return replace(self, trainer=(*self.trainer, f"--{name}", value))

    def words(self) -> list[str]:
        """Return what this pod starts: torchrun in our own wrapping, that dies with the agent."""
        elastic = (sys.executable, "-m", "cloudrec.launch._elastic")
        return [*elastic, *_unlimited(self._with_role()), "--", *self.trainer]

    def _with_role(self) -> tuple[str, ...]:
        """Say whether this node hosts the rendezvous: torch would ask the DNS, which may not know yet."""
        endpoint, here = flag_value(self.torchrun, "rdzv_endpoint"), flag_value(self.torchrun, "local_addr")
        settings = flag_value(self.torchrun, "rdzv_conf") or ""
        if not endpoint or not here or "is_host=" in settings:
            return self.torchrun
        host = endpoint.rpartition(":")[0] or endpoint
        role = f"is_host={int(here == host or here.startswith(f'{host}.'))}"
        return (
            "--rdzv-conf",
            f"{settings},{role}" if settings else role,
            *_without(self.torchrun, "rdzv-conf"),
        )


def _without_program(words: Sequence[str]) -> list[str]:
    if words and Path(words[0]).name == "torchrun":
        return list(words[1:])
    for position, word in enumerate(words[:-1]):
        if word == "-m" and words[position + 1] in _TORCHRUN_MODULES:
            return list(words[position + 2 :])
    program = words[0] if words else ""
    raise UsageError(f"the agent starts torchrun, and the command begins with {program!r}")


def _unlimited(torchrun: tuple[str, ...]) -> list[str]:
    """Return torchrun's words with as many restarts as it takes."""
    return ["--max-restarts", _MANY, *_without(torchrun, "max-restarts")]


def _without(words: tuple[str, ...], name: str) -> list[str]:
    """Return words without a flag and its value."""
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
