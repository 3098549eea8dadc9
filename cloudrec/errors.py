"""The exceptions that cloudrec raises for expected errors, with the command line's exit codes.

CloudrecError                1   a run or an operation failed
├── UsageError               2   a flag or an argument is invalid
│   ├── SpecError            2   a value in the spec file, the environment or a flag is invalid in the spec
│   └── DataError            2   input data is missing, damaged or of the wrong format
├── PreflightError           3   a requirement is missing: credentials, quota, tools
│   ├── MissingExtraError    3   an optional dependency is not installed
│   └── MisreadAnswerError   3   an answer of a cloud has other fields than its API's
├── NoCapacityError          4   the cloud has no capacity for the request
├── ResourcesRemainError     5   resources remain that should have been removed
├── DeclinedError            6   the user declined
├── BusyError                1   another process holds a lock
├── StorageError             1   a disk or a store failed (full, read-only, unreachable)
└── RunFailedError           1   the training run failed

The exit codes are part of the command line's interface: scripts rely on them.
"""

from __future__ import annotations

# What Python raises where typed code reads an answer whose fields are missing or have another type.
MISREAD = (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError)
INTERRUPTED = 130  # a shell's exit code for a process that Ctrl-C ended: 128 + SIGINT


class CloudrecError(Exception):
    """An error for users: the message has the cause, the value and the limit, the remedy what to do."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(CloudrecError):
    """A flag or an argument is invalid."""

    exit_code = 2


class SpecError(UsageError):
    """A value in the spec file, the environment or a flag is invalid in the spec.

    Attributes:
        keys: the top-level key of each invalid value; empty if the error is not about values.
    """

    def __init__(self, message: str, *, remedy: str | None = None, keys: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.keys = keys


class DataError(UsageError):
    """Input data is missing, damaged or of the wrong format."""


class PreflightError(CloudrecError):
    """A requirement of the command is missing: credentials, quota, tools, a cluster."""

    exit_code = 3


class MissingExtraError(PreflightError):
    """An optional dependency is not installed, or cannot be imported."""

    def __init__(self, extra: str, *, module: str, why: str = "") -> None:
        found = f"{module} cannot be imported: {why}" if why else f"no module named {module!r}"
        super().__init__(
            f"this needs the extra {extra!r}, which is not installed ({found})",
            remedy=f"pip install 'cloudrec[{extra}]', or `make setup` in a clone of the repository",
        )


class NoCapacityError(CloudrecError):
    """The cloud has no capacity for any candidate."""

    exit_code = 4


class ResourcesRemainError(CloudrecError):
    """Resources remain that should have been removed, and may cost money."""

    exit_code = 5


class DeclinedError(CloudrecError):
    """The user declined a confirmation, or there was no terminal to ask on."""

    exit_code = 6


class BusyError(CloudrecError):
    """Another process holds a lock that this one needs."""


class StorageError(CloudrecError):
    """A disk or a store failed: full, read-only, unreachable."""


class RunFailedError(CloudrecError):
    """The training run failed."""


class UnreadableAnswerError(Exception):
    """An answer of a cloud says success, and is not what the service's API answers.

    A proxy's page, an empty or a damaged answer. It does not show whether the call had its effect: a read is
    retried, and the engine takes a change for LOST.
    """


class MisreadAnswerError(UnreadableAnswerError, PreflightError):
    """Fields of an answer are missing or have another type; or what reads them has a defect."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        advice = "check the network, the proxy and the endpoint, and run the command again; then report it"
        super().__init__(message, remedy=remedy or advice)
