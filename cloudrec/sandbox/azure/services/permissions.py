"""Checks what a caller may do.

`enforce_iam` of /_control: true checks every call against the role assignments of its caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.sandbox.azure.call import Call


def check(call: Call) -> None:
    """Refuse what the caller's roles do not allow."""
