"""The exit codes of the trainer and of the agent that runs it.

Manifests, batch scripts, launchers and the trainer read the numbers from here. They follow sysexits.h if it
has a matching code, and are below 128, since a shell reports signals as 128 and more.
"""

from __future__ import annotations

from typing import Final

FINISHED: Final = 0
FAILED: Final = 1  # any failure without a separate code
BAD_CONFIG: Final = 64  # EX_USAGE: the configuration cannot be run; a restart fails again
BAD_DATA: Final = (
    65  # EX_DATAERR: the data is missing, damaged or has another encoding; a restart fails again
)
UNFIT_NODE: Final = 69  # EX_UNAVAILABLE, of the agent: the node does not meet the run's requirements
RESTARTS_SPENT: Final = 70  # EX_SOFTWARE, of the agent: the ranks crashed more often than `max_restarts`
GANG_INCOMPLETE: Final = 71  # of the agent: too few nodes joined the run in time, and no rank has started
STOPPED: Final = 75  # EX_TEMPFAIL: stopped with a committed checkpoint; start again to resume
PEER_LOST: Final = 76  # EX_PROTOCOL: another rank was lost; start again, and do not count this as a crash
KILLED: Final = (134, 135, 137, 139)
"""Codes of an agent that a signal ended: SIGABRT, SIGBUS, SIGKILL (out of memory, too), SIGSEGV."""

STOPPED_FOR_OPERATOR: Final = 203
"""STOPPED, for operators that restart a pod only after codes of 128 and more."""

FINAL: Final = (BAD_CONFIG, BAD_DATA, UNFIT_NODE)
"""Codes after which every further attempt would fail again."""
