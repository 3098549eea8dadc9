"""The kernels of rows.c: look-up and fused update of embedding rows."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import ClassVar

from trainer.native.library import Library, load

_INT, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class LookUpJob(ctypes.Structure):
    """`struct look_up` of rows.c; its items are samples."""

    _fields_: ClassVar = [
        *((name, _POINTER) for name in ("weights", "ids", "offsets", "first_rows", "rows", "out")),
        *((name, _INT) for name in ("features", "batch", "dim", "stride")),
    ]


class UpdateJob(ctypes.Structure):
    """`struct update` of rows.c; its items are features."""

    _fields_: ClassVar = [
        *((name, _POINTER) for name in ("weights", "first_state", "second_state")),
        *((name, _POINTER) for name in ("ids", "offsets", "first_rows", "rows", "gradient")),
        *((name, _INT) for name in ("first_width", "second_width", "batch", "dim", "stride", "kind")),
        *((name, _FLOAT) for name in ("rate", "eps", "first_correction", "second_correction")),
    ]


@cache
def load_rows() -> Library | None:
    """Load the kernels look_up and update; None, with a warning, if they cannot be compiled."""
    # No implicit fused multiply-add, so that results are the same on every processor.
    otherwise = "tables are updated by torch, at a third of the speed"
    return load("rows", ("look_up", "update"), "-ffp-contract=off", otherwise=otherwise)
