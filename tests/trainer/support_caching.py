"""fbgemm's tables with the cache of fused_uvm_caching, on a CPU.

The real cache needs a GPU. This one behaves like SplitTableBatchedEmbeddingBagsCodegen of fbgemm_gpu
1.8.0 (split_table_batched_embeddings_ops_training.py):

- `forward` first brings the rows that it looks up into `lxu_cache_weights` (`_prefetch`, lines 2983 to 3092),
  where look-ups read them and the fused optimizer changes them;
- `split_embedding_weights` (3234 to 3263) shows `weights_uvm`, so not what the cache holds;
- `flush` (3608 to 3622) writes the cached rows to `weights_uvm`; they stay cached;
- `reset_cache_states` (4019 to 4026) marks every place of the cache as free and writes nothing;
- optimizer states are made with `cacheable=False` (1237 to 1358), so their memory is always up to date.

Here the cache never evicts a row, and the module's own memory, where fbgemm's CPU code looks up and updates,
is right for the cached rows alone.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
from torch import Tensor
from torchrec.distributed import batched_embedding_kernel


class CachingTables(SplitTableBatchedEmbeddingBagsCodegen):
    """See the module."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.flushes = 0  # calls
        self._in_host_memory = [weight.clone() for weight in self._in_cache()]
        self._is_cached = [torch.zeros(len(weight), dtype=torch.bool) for weight in self._in_cache()]

    def forward(self, indices: Tensor, offsets: Tensor, *given: Any, **named: Any) -> Tensor:
        """Fetch what is not cached; then as fbgemm does on CPUs."""
        bags = (len(offsets) - 1) // len(self.feature_table_map)
        for feature, table in enumerate(self.feature_table_map):
            rows = indices[offsets[feature * bags] : offsets[(feature + 1) * bags]].unique()
            missing = rows[~self._is_cached[table][rows]]
            self._in_cache()[table][missing] = self._in_host_memory[table][missing]
            self._is_cached[table][rows] = True
        looked_up: Tensor = super().forward(indices, offsets, *given, **named)
        return looked_up

    def split_embedding_weights(self) -> list[Tensor]:
        """The tables in host memory."""
        return self._in_host_memory

    def newest(self) -> list[Tensor]:
        """The tables as look-ups see them."""
        return [
            torch.where(cached[:, None], newest, held)
            for held, cached, newest in zip(
                self._in_host_memory, self._is_cached, self._in_cache(), strict=True
            )
        ]

    def flush(self) -> None:
        """Write cached rows to host memory."""
        self.flushes += 1
        for held, cached, newest in zip(self._in_host_memory, self._is_cached, self._in_cache(), strict=True):
            held[cached] = newest[cached]

    def reset_cache_states(self) -> None:
        """Forget which rows are cached."""
        for cached in self._is_cached:
            cached.zero_()

    def _in_cache(self) -> list[Tensor]:
        weights: list[Tensor] = super().split_embedding_weights()
        return weights


class ForgetfulTables(CachingTables):
    """Tables that never write their cache back: what a trainer sees that does not call `flush`."""

    def flush(self) -> None:
        """Do nothing."""


def use_caching_tables(patch: pytest.MonkeyPatch, kind: type[CachingTables] = CachingTables) -> None:
    """Make torchrec create these tables instead of fbgemm's; they are used with table_kernel fbgemm."""
    patch.setattr(batched_embedding_kernel, "SplitTableBatchedEmbeddingBagsCodegen", kind)
