"""Embedding tables quantised by rows, for scoring: fbgemm's 8-bit and 4-bit tables, or 16-bit floats.

A row of 8 or 4 bits is its codes, then scale and bias as two 16-bit floats: dim * bits / 8 + 4 bytes. That is
the format of `torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf`; exports use it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedTensor

from trainer.base.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

Quantization: TypeAlias = Literal["none", "fp16", "int8", "int4"]
BITS = {"int8": 8, "int4": 4}
_TYPES = {"int8": SparseType.INT8, "int4": SparseType.INT4}
SCALE_BYTES = 4  # scale and bias of a row


def quantize_rows(weight: Tensor, kind: Quantization) -> Tensor:
    """Quantise float rows [rows, dim]: to bytes [rows, dim * bits / 8 + 4], or to float16 [rows, dim].

    Each row is coded by itself, so the codes of some rows are those that the whole table would get.

    Raises:
        CheckpointError: a value is too large for a 16-bit float.
    """
    if kind == "fp16":
        halves = weight.half()
        if bool((halves.isinf() & weight.isfinite()).any()):
            raise CheckpointError(
                f"a table has the value {weight.abs().nan_to_num(0, 0).max():.3g}, but 16-bit floats end at "
                "65504; use int8 or full precision"
            )
        return halves
    return torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(weight.contiguous(), BITS[kind])


def row_bytes(dim: int, kind: Quantization) -> int:
    """Return the bytes of a quantised row."""
    return dim * BITS[kind] // 8 + SCALE_BYTES


class QuantizedTables(nn.Module):
    """Quantised tables with the interface of an EmbeddingBagCollection: sums the rows of each bag."""

    def __init__(self, rows: Mapping[str, Tensor], *, dim: int, kind: Quantization) -> None:
        """`rows` holds each table's quantised rows, by feature."""
        super().__init__()
        self.features = list(rows)
        self.dim = dim
        place = EmbeddingLocation.HOST
        self.kernel = IntNBitTableBatchedEmbeddingBagsCodegen(
            [(name, len(table), dim, _TYPES[kind], place) for name, table in rows.items()],
            device="cpu",
            pooling_mode=PoolingMode.SUM,
            output_dtype=SparseType.FP32,
        )
        self.kernel.initialize_weights()
        kernel_tables = self.kernel.split_embedding_weights(split_scale_shifts=True)
        for (codes, scales), table in zip(kernel_tables, rows.values(), strict=True):
            codes.copy_(table[:, :-SCALE_BYTES])
            scales.copy_(table[:, -SCALE_BYTES:])

    def forward(self, ids: KeyedJaggedTensor) -> KeyedTensor:
        """Return pooled embeddings [B, features * dim]."""
        pooled = self.kernel(ids.values().int(), ids.offsets().int())
        return KeyedTensor(self.features, [self.dim] * len(self.features), pooled)
