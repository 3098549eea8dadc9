"""How fast a node reads, as data: a provider's table `storage/rates.csv`, one row a tier and a kind of it.

A cell `read_gb_s` that is empty is not known. `basis` says whose number it is: `vendor` for one that the
cloud publishes for exactly this, `estimate` for one that is derived, as `source` explains.
"""

from __future__ import annotations

import csv
import io
from datetime import date  # noqa: TC003 - pydantic reads the annotations
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "rates.csv"
CLIENT = "client"  # the row of one node, for a tier that all nodes share


class RateRow(BaseModel):
    """One row.

    Attributes:
        tier: local, lustre or bucket.
        key: what it is the rate of: a machine type, a number of disks, or `client` for one node of any type.
        read_gb_s: GB/s that one node reads; None if it is not known.
        basis: vendor or estimate.
        as_of: the date of the source, or the day on which it was read if it has none.
        source: where the number is from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tier: Literal["local", "lustre", "bucket"]
    key: str = Field(min_length=1)
    read_gb_s: float | None = Field(default=None, gt=0, le=1000)
    basis: Literal["vendor", "estimate"]
    as_of: date
    source: str = Field(min_length=8)

    @property
    def label(self) -> str:
        """Whose number it is, and its date; empty if there is no number."""
        return f"{self.basis}, {self.as_of}" if self.read_gb_s is not None else ""


Rates = dict[tuple[str, str], RateRow]


def rates_of(package: str) -> Rates:
    """Return a provider's table by tier and key.

    Args:
        package: the package with the file `rates.csv`.

    Raises:
        DataError: the file is damaged.
    """
    text = files(package).joinpath(FILE).read_text(encoding="utf-8")
    return parsed(text, name=f"{package.replace('.', '/')}/{FILE}")


def parsed(text: str, *, name: str) -> Rates:
    """Return the rows of a table by tier and key; DataError names the file, the line and the column."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    if (header := list(reader.fieldnames or ())) != list(RateRow.model_fields):
        raise _damaged(name, f"its columns are {', '.join(header)}, not {', '.join(RateRow.model_fields)}")
    found: Rates = {}
    for cells in reader:
        place = f"line {reader.line_num}"
        if None in cells or None in cells.values():
            raise _damaged(name, f"{place}: it has not {len(header)} cells")
        row = _row(cells, name, place)
        if (row.tier, row.key) in found:
            raise _damaged(name, f"{place}: {row.tier} {row.key} has two rows")
        found[row.tier, row.key] = row
    return found


def _row(cells: Mapping[str, str], name: str, place: str) -> RateRow:
    given = {column: cell.strip() for column, cell in cells.items() if cell.strip()}
    try:
        return RateRow.model_validate(given)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc'])) or 'row'}: {each['msg']}" for each in error.errors()]
        raise _damaged(name, f"{place}: {'; '.join(faults)}") from error


def _damaged(name: str, fault: str) -> DataError:
    return DataError(f"{name} is damaged: {fault}", remedy="correct the file, or install cloudrec again")
