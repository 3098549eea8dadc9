"""Writing one rank's file of one layer from frames: coded and checksummed, then its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from isal import isal_zlib

from trainer.checkpoint.format.coding import Quantization, quantize
from trainer.checkpoint.format.commit import LayerManifest, Part, PartRows, data_name, encode_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from trainer.checkpoint.format.frames import Chunk, Frame
    from trainer.checkpoint.store.base import Store

_ALIGNMENT = 64  # bytes; so that a part can be memory-mapped as a tensor of any type
_WEIGHTS = {"float32": np.float32, "float16": np.float16}  # what can be quantised


def write_layer(
    store: Store, stem: str, frames: Iterable[Frame], quantization: Quantization
) -> LayerManifest:
    """Write all frames to STEM.bin, then STEM.json; both are durable on return."""
    # The manifest is created last: to the rank that commits, its existence means that the data is whole.
    name = f"{stem}.json"
    with store.write(data_name(name)) as file:
        written = _Written(file, quantization)
        for head, chunks in frames:
            written.add(head, chunks)
    manifest = LayerManifest(data_name(name), written.position, tuple(written.parts))
    store.create(name, encode_manifest(manifest))
    return manifest


class _Written:
    def __init__(self, file: BinaryIO, quantization: Quantization) -> None:
        self.parts: list[Part] = []
        self.position = 0
        self._file = file
        self._quantization = quantization
        self._rows: PartRows | None = None

    def add(self, head: dict[str, Any], chunks: Iterator[Chunk]) -> None:
        if "rows" in head:
            run = self._write(chunks)
            self._rows = PartRows(head["rows"], head["count"], run.position, run.length, run.crc32)
            return
        rows = self._rows if head["some"] else None
        coding = "raw"
        if rows is not None and self._is_quantized(head):
            coding = self._quantization
            chunks = _quantized(chunks, head)
        run = self._write(chunks)
        self.parts.append(
            Part(
                name=head["name"],
                dtype=head["dtype"],
                shape=tuple(head["shape"]),
                offsets=tuple(head["offsets"]),
                sizes=tuple(head["sizes"]),
                position=run.position,
                length=run.length,
                crc32=run.crc32,
                coding=coding,
                rows=rows,
            )
        )

    def _is_quantized(self, head: dict[str, Any]) -> bool:
        """Whether to quantise it: weights of tables only, since optimizer states must stay exact."""
        weight = head["name"].endswith("/weight") and head["dtype"] in _WEIGHTS and len(head["sizes"]) == 2  # noqa: PLR2004 - a matrix
        return self._quantization != "none" and weight

    def _write(self, chunks: Iterable[Chunk]) -> _Run:
        padding = -self.position % _ALIGNMENT
        self._file.write(b"\0" * padding)
        self.position += padding
        start, checksum = self.position, 0
        for chunk in chunks:
            checksum = isal_zlib.crc32(chunk, checksum)
            self._file.write(chunk)
            self.position += len(chunk)
        return _Run(start, self.position - start, checksum)


@dataclass(frozen=True, slots=True)
class _Run:
    position: int
    length: int
    crc32: int


def _quantized(chunks: Iterable[Chunk], head: dict[str, Any]) -> Iterator[Chunk]:
    for chunk in chunks:
        values = np.frombuffer(chunk, dtype=_WEIGHTS[head["dtype"]]).reshape(-1, head["sizes"][1])
        yield quantize(values).reshape(-1).data
