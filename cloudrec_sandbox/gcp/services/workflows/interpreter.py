"""Runs a program: each run begins at its first step, and takes what was done before from the record.

An execution that waits ends with `Waiting`, and is run again later. So its state is plain data, which a
snapshot of the stand-in can hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from cloudrec_sandbox.gcp.services.workflows import expressions
from cloudrec_sandbox.gcp.services.workflows.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.gcp.services.workflows.programs import Steps

_RETRIED = (429, 502, 503, 504)
_RETRIED_TAGS = ("ConnectionError", "ConnectionFailedError", "TimeoutError")


class Waiting(Exception):  # noqa: N818 - it is no error
    """The execution waits for some seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class _Returned(Exception):  # noqa: N818 - it is no error
    def __init__(self, value: Any) -> None:  # noqa: ANN401 - JSON
        super().__init__()
        self.value = value


class Outside(Protocol):
    """What a program reaches: the clock, and servers."""

    def now(self) -> float:
        """Return the time in seconds since the epoch."""

    def http(self, method: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the response of a call; ProgramError if it fails."""


@dataclass
class Done:
    """One thing that an execution has done: its result, or the error's map."""

    value: Any = None
    error: dict[str, Any] | None = None


@dataclass
class Interpreter:
    """One run of a program.

    Attributes:
        outside: what it reaches.
        record: what earlier runs have done, in order; this run adds to it.
        billed: the steps that Google bills: calls, retries, assignments, conditions and returns.
    """

    outside: Outside
    record: list[Done]
    billed: int = 0
    _at: int = field(default=0)

    def run(self, steps: Steps, variables: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a program; Waiting if it waits, ProgramError if it fails."""
        try:
            self._all(steps, variables)
        except _Returned as returned:
            return returned.value
        return None

    def _once(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the result of work that is done once in an execution."""
        if self._at == len(self.record):
            try:
                self.record.append(Done(value=work()))
            except ProgramError as error:
                self.record.append(Done(error=error.map))
        done = self.record[self._at]
        self._at += 1
        if done.error is not None:
            raise _again(done.error)
        return done.value

    def _sleep(self, seconds: float) -> None:
        is_new = self._at == len(self.record)
        if is_new:
            self.record.append(Done())
        self._at += 1
        if is_new:
            raise Waiting(seconds)

    def _now(self) -> float:
        found: float = self._once(self.outside.now)
        return found

    def _value(self, value: Any, variables: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            return {key: self._value(each, variables) for key, each in value.items()}
        if isinstance(value, list):
            return [self._value(each, variables) for each in value]
        return (
            expressions.evaluate(value, variables, self._now) if expressions.is_expression(value) else value
        )

    def _all(self, steps: Steps, variables: dict[str, Any]) -> None:
        for entry in steps:
            (step,) = entry.values()
            self._step(step, variables)

    def _step(self, step: dict[str, Any], variables: dict[str, Any]) -> None:
        if "assign" in step:
            for entry in step["assign"]:
                ((name, value),) = entry.items()
                self.billed += 1
                variables[name] = self._value(value, variables)
        elif "call" in step:
            self._call(step, variables)
        elif "switch" in step:
            self._switch(step["switch"], variables)
        elif "for" in step:
            loop = step["for"]
            for value in self._value(loop["in"], variables):
                self._scoped(loop["steps"], variables, {loop["value"]: value})
        elif "try" in step:
            self._try(step, variables)
        elif "steps" in step:
            self._all(step["steps"], variables)
        else:
            self.billed += 1
            raise _Returned(self._value(step["return"], variables))

    def _scoped(self, steps: Steps, variables: dict[str, Any], local: dict[str, Any]) -> None:
        """Run the steps of a loop or of an except block: what they make is gone afterwards."""
        inner = {**variables, **local}
        try:
            self._all(steps, inner)
        finally:
            variables.update({name: inner[name] for name in variables if name not in local})

    def _call(self, step: dict[str, Any], variables: dict[str, Any]) -> None:
        self.billed += 1
        name, arguments = step["call"], self._value(step.get("args", {}), variables)
        if name == "sys.sleep":
            self._sleep(float(arguments["seconds"]))
            return
        method = name.removeprefix("http.").upper()
        method = arguments.pop("method", "GET") if method == "REQUEST" else method
        answer = self._once(lambda: self.outside.http(method, arguments))
        if step.get("result"):
            variables[step["result"]] = answer

    def _switch(self, branches: list[dict[str, Any]], variables: dict[str, Any]) -> None:
        for branch in branches:
            self.billed += 1
            if self._value(branch["condition"], variables) is True:
                if "steps" in branch:
                    self._all(branch["steps"], variables)
                    return
                raise _Returned(self._value(branch.get("return"), variables))

    def _try(self, step: dict[str, Any], variables: dict[str, Any]) -> None:
        retry, number = step.get("retry"), 0
        while True:
            try:
                if "steps" in step["try"]:
                    self._all(step["try"]["steps"], variables)
                else:
                    self._step(step["try"], variables)
            except ProgramError as error:
                if retry and number < int(retry.get("max_retries", 0)) and _is_retried(retry, error):
                    self._sleep(_delay(retry.get("backoff", {}), number))
                    number += 1
                    continue
                if "except" not in step:
                    raise
                handler = step["except"]
                self._scoped(handler["steps"], variables, {handler["as"]: error.map})
            return


def _again(error: dict[str, Any]) -> ProgramError:
    more = {name: value for name, value in error.items() if name not in {"tags", "message"}}
    return ProgramError(error["tags"][0], error["message"], **more)


def _is_retried(retry: dict[str, Any], error: ProgramError) -> bool:
    if retry["predicate"] == "${retry.always}":
        return True
    return error.map.get("code") in _RETRIED or error.map["tags"][0] in _RETRIED_TAGS


def _delay(backoff: dict[str, Any], number: int) -> float:
    """Return the seconds before a retry, from 0 on."""
    first, most = float(backoff.get("initial_delay", 1)), float(backoff.get("max_delay", 60))
    return min(first * float(backoff.get("multiplier", 1.25)) ** number, most)
