"""Every error that cloudrec raises on purpose, each with the exit code that the command line ends with.

CloudrecError                1   a run or an operation failed
├── UsageError               2   a flag or an argument is wrong
│   ├── SpecError            2   the spec file, the environment or a flag does not fit the spec
│   └── DataError            2   the data given to us is missing, damaged or not what it should be
├── PreflightError           3   something that must be there first is not: credentials, quota, tools
│   └── MissingExtraError    3   an optional dependency is not installed
├── NoCapacityError          4   the cloud has none of what was asked for
├── ResourcesRemainError     5   something that should be gone is still there
├── DeclinedError            6   the user said no
├── BusyError                1   another process holds what this one needs
├── StorageError             1   a disk or a store refuses (full, read-only, unreachable)
└── RunFailedError           1   the training run ended in failure

The exit codes are part of the command line's interface: scripts rely on them.
"""

from __future__ import annotations

INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C


class CloudrecError(Exception):
    """An error that a person can act on: what is wrong, the value, the limit, and the remedy."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class UsageError(CloudrecError):
    """A flag or an argument is wrong."""

    exit_code = 2


class SpecError(UsageError):
    """The spec file, the environment or a flag does not fit the spec."""


class DataError(UsageError):
    """The data given to us is missing, damaged or not what it should be."""


class PreflightError(CloudrecError):
    """Something that must be there before the work starts is not."""

    exit_code = 3


class MissingExtraError(PreflightError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, *, module: str) -> None:
        super().__init__(
            f"this needs the extra {extra!r}, which is not installed (no module named {module!r})",
            remedy=f"pip install 'cloudrec[{extra}]', or `make setup` in a clone of the repository",
        )


class NoCapacityError(CloudrecError):
    """The cloud has none of what was asked for, in any candidate."""

    exit_code = 4


class ResourcesRemainError(CloudrecError):
    """Something that should be gone is still there, and may still cost money."""

    exit_code = 5


class DeclinedError(CloudrecError):
    """The user said no, or could not be asked."""

    exit_code = 6


class BusyError(CloudrecError):
    """Another process holds what this one needs."""


class StorageError(CloudrecError):
    """A disk or a store refuses: full, read-only, unreachable."""


class RunFailedError(CloudrecError):
    """The training run ended in failure."""
