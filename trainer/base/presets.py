"""Defaults of published setups, which `--preset` puts in place of the trainer's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADAGRAD_EPS = 1e-10  # of torch.optim.Adagrad and of torchrec's RowWiseAdagrad
_OTHER_SPELLINGS = {"num_embeddings": "num_embeddings_per_feature", "batch_size": "global_batch_size"}


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of their preset for the keys that are not given."""
    if values.get("preset") != "golden":
        return dict(values)
    given = {key for key, value in values.items() if value is not None}
    defaults = _golden(values.get("embedding_dim") or 128)
    return {key: value for key, value in defaults.items() if _OTHER_SPELLINGS.get(key) not in given} | dict(
        values
    )


def _golden(embedding_dim: object) -> dict[str, Any]:
    """Return the defaults of torchrec's examples/golden_training/train_dlrm.py."""
    return {
        "num_embeddings": 1024**2,
        "embedding_dim": embedding_dim,
        "dense_arch_layer_sizes": [64, embedding_dim],
        "over_arch_layer_sizes": [64, 1],
        "batch_size": 32,
        "num_iterations": 1000,
        "table_optimizer": "rowwise_adagrad",
        "learning_rate": 0.1,
        "dense_optimizer": "adagrad",
        "dense_learning_rate": 0.1,
        "optimizer_eps": _ADAGRAD_EPS,
        "lr_decay": "none",
        "qcomm_forward_precision": "fp16",
        "qcomm_backward_precision": "bf16",
    }
