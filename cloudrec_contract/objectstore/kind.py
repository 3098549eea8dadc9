"""The description of a kind of store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StoreKind:
    """A kind of store.

    Attributes:
        schemes: its URI schemes, the most common one first.
        example: an example of a URI, for messages.
        extra: the extra of cloudrec that it needs; empty for none.
        needs: the modules of that extra that must be installed.
        is_shared: whether every machine can reach it by the URI.
    """

    schemes: tuple[str, ...]
    example: str
    extra: str = ""
    needs: tuple[str, ...] = ()
    is_shared: bool = True
