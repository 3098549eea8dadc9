"""Findings: the results of checks of an account, a cluster or a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check.

    Attributes:
        check: the check's name.
        ok: whether the check passed.
        found: the value or state that was found.
        needed: the value or state that is needed.
        remedy: what the user can do if the check failed.
        blocks: whether a failed check stops the command; False for a warning.
    """

    check: str
    ok: bool
    found: str
    needed: str = ""
    remedy: str = ""
    blocks: bool = True
