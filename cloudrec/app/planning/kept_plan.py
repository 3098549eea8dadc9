"""The rows of the last plan, kept in the home for `up --from-plan`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.errors import UsageError
from cloudrec.home import make_private, read_text, write_atomically
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.app.context import AppContext

_NAME = "plan.json"
_REMEDY = "run `cloudrec plan`, which numbers its rows"
_MOST_CHARACTERS = 100  # of a name


@dataclass(frozen=True, kw_only=True)
class KeptOffer:
    """What `up` takes from a row of a plan.

    Attributes:
        provider: the cloud.
        region: the region; empty for the cloud's default.
        machine: the machine type.
        nodes: the number of nodes.
        capacity: on-demand or spot.
    """

    provider: str
    region: str
    machine: str
    nodes: int
    capacity: str


def keep_plan(app: AppContext, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Store the rows that were shown, for `up --from-plan`; return the file."""
    path = app.home.root / _NAME
    make_private(app.home.root)
    write_atomically(path, json.dumps({"offers": list(rows)}))
    return path


def kept_offer(app: AppContext, number: int) -> KeptOffer:
    """Return a row of the last plan, by its number.

    Raises:
        UsageError: there is no plan, it cannot be read, or it has no such row.
    """
    path = app.home.root / _NAME
    try:
        rows = list(safe_object(read_text(path))["offers"])
        found = next((_parsed(row) for row in rows if row["number"] == number), None)
    except FileNotFoundError:
        raise UsageError("there is no plan in this home", remedy=_REMEDY) from None
    except KeyError as error:
        raise UsageError(f"the last plan, {path}, lacks {error}", remedy=_REMEDY) from error
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"the last plan, {path}, cannot be read: {error}", remedy=_REMEDY) from error
    if found is None:
        raise UsageError(f"the last plan has no row {number}; it has {len(rows)}", remedy=_REMEDY)
    return found


def _parsed(row: Mapping[str, Any]) -> KeptOffer:
    nodes = row["nodes"]
    if not isinstance(nodes, int) or nodes < 1:
        raise ValueError(f"{str(nodes)[:_MOST_CHARACTERS]} nodes")
    return KeptOffer(
        provider=_name(row["provider"]),
        region=_name(row["region"]),
        machine=_name(row["type"]),
        nodes=nodes,
        capacity=_name(row["capacity"]),
    )


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MOST_CHARACTERS:
        raise ValueError(f"the name {str(value)[:_MOST_CHARACTERS]!r}")
    return value
