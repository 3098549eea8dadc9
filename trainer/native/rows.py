"""The kernels of rows.c: look-up and fused update of embedding rows."""

from __future__ import annotations

import ctypes
import logging
import subprocess
from functools import cache
from typing import ClassVar

from trainer.native.compiler import compiled
from trainer.native.library import Library

_LOG = logging.getLogger(__name__)

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
    try:
        # No implicit fused multiply-add, so that results are the same on every processor.
        return Library(compiled("rows", "-ffp-contract=off"), ("look_up", "update"))
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines() or [""]
        _LOG.warning("tables are updated by torch, at a third of the speed: no C kernel (%s)", lines[0])
        return None
