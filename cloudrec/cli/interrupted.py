"""What Ctrl-C leaves: what exists, what it costs an hour, and the commands that continue or remove it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.graph import cost_of
from cloudrec.errors import CloudrecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.app import AppContext
    from cloudrec.engine.journal import ClusterRecord

Messages = tuple[str, str]  # the message and the remedy
_in_hand: list[Callable[[Sequence[str]], Messages]] = []


@dataclass(kw_only=True)
class ClusterInHand:
    """The cluster that a command changes.

    Attributes:
        app: the context of the use cases.
        name: the cluster's name; None while the command may mean any.
        provider: its provider; None if it is not known yet.
        is_removal: whether the command removes it.
        total: how many resources the command makes or removes; 0 if that is not known yet.
    """

    app: AppContext
    name: str | None
    provider: str | None = None
    is_removal: bool = False
    total: int = 0

    def messages(self, arguments: Sequence[str]) -> Messages:
        """Return the message and the remedy after Ctrl-C; no cloud is asked."""
        records = self._records()
        provider = self.provider or next((each.provider for each in records), None)
        name = self.name or next((each.name for each in records if len(records) == 1), None)
        words = [*([provider] if provider else []), *(["--cluster", name] if name else [])]
        if self.is_removal:
            other = f"create it again: `{_command('up', *words)}`, with its other options"
        else:
            other = f"remove: `{_command('down', *words)}`"
        return f"interrupted\n{self.state()}", f"continue: `{_command(*arguments)}`\n{other}"

    def state(self) -> str:
        """Return a line for each cluster: how much of it exists, and what that costs an hour."""
        try:
            names = [self.name] if self.name is not None else [each.name for each in self._records()]
            return "\n".join(self._state(name) for name in names) or "no cluster exists ($0.00/h)"
        except CloudrecError as error:  # a damaged journal must not hide the commands
            return f"the journal cannot be read, so what exists is unknown: {error.message}"

    def _records(self) -> Sequence[ClusterRecord]:
        try:
            return [each for each in self.app.journal.clusters() if self.name in {None, each.name}]
        except CloudrecError:  # `state` says so
            return []

    def _state(self, name: str) -> str:
        known = self.app.journal.known(name)
        if not known:
            left = "is left" if self.is_removal else "exists"
            return f"nothing of cluster {name!r} {left}, by the journal ($0.00/h)"
        made = sum(bool(each.identity) for each in known)
        of = f" of {self.total}" if self.total else ""
        text = f"cluster {name!r}: {made}{of} resources {'are left' if self.is_removal else 'exist'}"
        if made < len(known):
            text += f", and {len(known) - made} whose creation was under way may"
        return f"{text} ({cost_of(known).text})"


@dataclass(kw_only=True)
class RunInHand:
    """The run that a command launches or stops.

    Attributes:
        app: the context of the use cases.
        name: the run's name; None while it has none.
        is_stop: whether the command stops it.
    """

    app: AppContext
    name: str | None
    is_stop: bool = False

    def messages(self, arguments: Sequence[str]) -> Messages:
        """Return the message and the remedy after Ctrl-C."""
        from cloudrec import app  # noqa: PLC0415  # only after Ctrl-C

        clusters = ClusterInHand(app=self.app, name=None)
        try:
            found = app.runs(self.app, self.name) if self.name is not None else ()
        except CloudrecError:  # it has no folder yet
            found = ()
        if not found:
            _, after = clusters.messages(arguments)
            return f"interrupted; no run was launched\n{clusters.state()}", after
        (view,) = found
        message = f"interrupted; run {view.name} is {view.state}\n{clusters.state()}"
        look = f"`{_command('logs', view.name, '--follow')}` follows it"
        if self.is_stop:
            return message, f"continue: `{_command(*arguments)}`\n{look}"
        if view.state.is_final:
            return message, f"continue: `{_command('train', '--resume', view.name)}`\n{look}"
        stop = f"stop: `{_command('stop', view.name)}`"
        return message, f"the run continues without this command; {look}\n{stop}"


def in_hand(messages: Callable[[Sequence[str]], Messages]) -> None:
    """Set what is shown if this command is interrupted from now on."""
    _in_hand[:] = [messages]


def let_go() -> None:
    """Forget what the command had in hand, and with it the open journal; the next command has its own."""
    _in_hand.clear()


def interruption(arguments: Sequence[str]) -> Messages:
    """Return the message and the remedy for a command that was interrupted."""
    return _in_hand[0](arguments) if _in_hand else ("interrupted", "")


def _command(*words: str) -> str:
    return shlex.join(["cloudrec", *words])
