"""Every error that the trainer raises on purpose, each with the exit code of the process.

TrainerError                 1   anything else that ends a run
├── ConfigError             64   the configuration cannot be run as it stands
├── DataError               65   the data is missing, damaged or not what the configuration expects
├── DependencyError          1   torch, fbgemm or torchrec is missing, or they do not fit one another
├── CheckpointError          1   a checkpoint cannot be written or read
├── NonFiniteLossError       1   the loss became NaN or infinite
└── PeerError                1   another rank failed or stopped answering (75 if there is a checkpoint)

The codes are the handshake with whatever launched the trainer: 64 and 65 mean that starting again
without a change is useless, 75 (`STOPPED`) that starting again goes on from a checkpoint.
"""

from __future__ import annotations

FINISHED = 0
STOPPED = 75  # EX_TEMPFAIL: a committed checkpoint is there, start me again


class TrainerError(Exception):
    """An error that a person can act on: what is wrong, the value, the limit, and the remedy."""

    exit_code = 1


class ConfigError(TrainerError):
    """The configuration cannot be run as it stands."""

    exit_code = 64


class DataError(TrainerError):
    """The data is missing, damaged or not what the configuration expects."""

    exit_code = 65


class DependencyError(TrainerError):
    """torch, fbgemm or torchrec is missing, or they do not fit one another."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written or read."""


class NonFiniteLossError(TrainerError):
    """The loss became NaN or infinite."""


class PeerError(TrainerError):
    """Another rank failed or stopped answering; with a checkpoint to go on from, it is worth a new start."""

    def __init__(self, message: str, *, resumable: bool = False) -> None:
        super().__init__(message)
        self.exit_code = STOPPED if resumable else TrainerError.exit_code
