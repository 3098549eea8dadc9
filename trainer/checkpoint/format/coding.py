"""The coding of rows in differentials: their numbers, and optionally their values in 8 bits.

Row numbers count from the first row of a piece. They are coded as one bit for every row of the piece, or as
four bytes for each listed row, whichever is shorter. If all rows are listed, nothing is stored.

A quantised row is its step and its least value (float32), then one code per column:
value = least + step * code. Checkpoints of earlier versions may also have rows in 4 bits, which are still
read. They are no longer written: ten restores from them cost up to 0.0007 of AUC
(benchmarks/results/quantized-restores-2026-11-21.md), where 8 bits cost less than 0.0001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

Quantization = Literal["none", "int8"]
BITS = {"int8": 8, "int4": 4}  # of the codings that can be read
_PARAMETERS = 8  # bytes a quantised row: step and least value
_LEVELS = np.float32(255)

Rows = Any  # npt.NDArray[np.int64], sorted


def encode_rows(rows: Rows, size: int) -> tuple[str, bytes]:
    """Return the coding's name and the bytes that encode `rows`, int64 sorted, of a piece of `size` rows."""
    if len(rows) == size:
        return "all", b""
    if len(rows) * 4 <= -(-size // 8):
        return "numbers", rows.astype("<u4").tobytes()
    flags = np.zeros(size, dtype=np.uint8)
    flags[rows] = 1
    return "bits", np.packbits(flags).tobytes()


def decode_rows(coding: str, data: bytes | bytearray, size: int) -> Rows:
    """Return the row numbers that `encode_rows` encoded: int64, sorted."""
    if coding == "all":
        return np.arange(size)
    if coding == "numbers":
        return np.frombuffer(data, dtype="<u4").astype(np.int64)
    flags = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=size)
    return np.flatnonzero(flags)


def quantized_bytes(columns: int, kind: str) -> int:
    """Return the bytes of one quantised row."""
    return _PARAMETERS + -(-columns * BITS[kind] // 8)


def quantize(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Quantise float rows [rows, columns] to bytes [rows, quantized_bytes]; NaN and inf stay non-finite."""
    values = values.astype(np.float32, copy=False)
    least, most = values.min(axis=1, initial=np.inf), values.max(axis=1, initial=-np.inf)
    with np.errstate(all="ignore"):
        step = (most - least) / _LEVELS
        inverse = np.where(step > 0, 1 / step, 0).astype(np.float32)
        codes = np.rint((values - least[:, None]) * inverse[:, None])
        codes = np.clip(np.nan_to_num(codes), 0, _LEVELS).astype(np.uint8)
    parameters = np.stack([step, least], axis=1).astype("<f4").view(np.uint8).reshape(len(values), -1)
    return np.concatenate([parameters, codes], axis=1)


def dequantize(data: npt.NDArray[np.uint8], columns: int, kind: str) -> npt.NDArray[np.float32]:
    """Return the float rows [rows, columns] that `quantize` coded as bytes [rows, quantized_bytes]."""
    parameters = np.ascontiguousarray(data[:, :_PARAMETERS]).view("<f4")
    codes = data[:, _PARAMETERS:]
    if kind == "int4":
        codes = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(data), -1)[:, :columns]
    # Damaged bytes may decode to NaN or infinity; the checksum reports the damage after the read.
    with np.errstate(all="ignore"):
        values: npt.NDArray[np.float32] = parameters[:, 1:] + parameters[:, :1] * codes.astype(np.float32)
    return values
