"""Hourly costs of resources. A price may be unknown (None); a sum never counts an unknown price as 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

FREE = 0.0  # the vendor's price list has no charge for it
BY_USE = 0.0  # billed by stored bytes, traffic or requests: the vendor charges nothing by the hour
UNKNOWN = "unknown"

_NAMED = 5  # items with an unknown price that one line names


@dataclass(frozen=True, kw_only=True)
class Item:
    """The item that a price belongs to.

    Attributes:
        name: the resource's kind or key.
        node_type: the type of its nodes; empty if it has none.
    """

    name: str
    node_type: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.node_type})" if self.node_type else self.name


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The total cost of several items.

    Attributes:
        known_usd: the sum of the known prices, in USD an hour.
        unknown: the items whose price is unknown.
    """

    known_usd: float = 0.0
    unknown: tuple[Item, ...] = ()

    @classmethod
    def of(cls, prices: Iterable[tuple[Item, float | None]]) -> Cost:
        """Return the total of (item, USD an hour) pairs; None is an unknown price."""
        listed = list(prices)
        return cls(
            known_usd=sum(usd for _, usd in listed if usd is not None),
            unknown=tuple(dict.fromkeys(item for item, usd in listed if usd is None)),
        )

    @property
    def usd(self) -> float | None:
        """The total in USD an hour; None if any price is unknown."""
        return None if self.unknown else self.known_usd

    @property
    def text(self) -> str:
        """The total for people, with the unpriced items: `$0.48/h + unknown: gpu-nodes (g5.xlarge)`."""
        if not self.unknown:
            return f"${self.known_usd:.2f}/h"
        known = f"${self.known_usd:.2f}/h + " if self.known_usd else ""
        return f"{known}{UNKNOWN}: {self.unknown_text}"

    @property
    def unknown_text(self) -> str:
        """The items whose price is unknown: the first five by name, and the number of the others."""
        more = len(self.unknown) - _NAMED
        names = [str(item) for item in self.unknown[:_NAMED]] + ([f"{more} more"] if more > 0 else [])
        return ", ".join(names)

    @property
    def cell(self) -> str:
        """The total as a table shows it: `$0.48`, `$0.48 + unknown`, `unknown`."""
        if not self.unknown:
            return price_text(self.known_usd)
        return f"{price_text(self.known_usd)} + {UNKNOWN}" if self.known_usd else UNKNOWN

    def to_json(self) -> dict[str, Any]:
        """Return the total as JSON; `hourly_usd` is null if any price is unknown."""
        return {
            "hourly_usd": self.usd,
            "known_hourly_usd": self.known_usd,
            "unknown_prices": [str(item) for item in self.unknown],
        }


def price_text(usd: float | None) -> str:
    """Return a price for people: `$0.48` or `unknown`."""
    return UNKNOWN if usd is None else f"${usd:.2f}"


def hourly_text(usd: float | None) -> str:
    """Return a price an hour for people: `$0.48/h` or `price unknown`."""
    return "price unknown" if usd is None else f"${usd:.2f}/h"


def total(*prices: float | None) -> float | None:
    """Return the sum of prices; None if any of them is unknown."""
    known = [usd for usd in prices if usd is not None]
    return sum(known) if len(known) == len(prices) else None


def times(count: float, usd: float | None) -> float | None:
    """Return `count` times a price; None if the price is unknown and the count is not 0."""
    if usd is None:
        return None if count else 0.0
    return count * usd
