"""Every error that the trainer raises on purpose, each with the exit code of the process.

TrainerError                 1   anything else that ends a run
├── ConfigError             64   the configuration cannot be run
├── DatasetError            65   the data is missing, damaged or not what the configuration expects
├── DependencyError          1   torch, fbgemm or torchrec is missing, or they do not fit one another
├── CheckpointError          1   a checkpoint cannot be written or read
│   └── SaveError            1   a save failed; earlier checkpoints are intact, and a later save may succeed
├── NonFiniteLossError       1   the loss became NaN or infinite
└── PeerError               76   another rank failed or stopped answering

The launcher decides by the exit code: after 64 or 65 a restart without a change fails again; after
75 (`STOPPED`) a restart continues from a checkpoint.
"""

from __future__ import annotations

from cloudrec_contract.exit_codes import BAD_CONFIG, BAD_DATA, FAILED, PEER_LOST


class TrainerError(Exception):
    """An error that a user can act on; its message has the problem, the value, the limit and the remedy."""

    exit_code: int = FAILED


class ConfigError(TrainerError):
    """The configuration cannot be run."""

    exit_code = BAD_CONFIG


class DatasetError(TrainerError):
    """The data is missing, damaged or not what the configuration expects."""

    exit_code = BAD_DATA


class DependencyError(TrainerError):
    """torch, fbgemm or torchrec is missing, or they do not fit one another."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written or read."""


class SaveError(CheckpointError):
    """A save failed; earlier checkpoints are intact, and a later save may succeed."""


class NonFiniteLossError(TrainerError):
    """The loss became NaN or infinite."""


class PeerError(TrainerError):
    """Another rank failed or stopped answering; this rank did not fail and can be restarted."""

    exit_code = PEER_LOST
