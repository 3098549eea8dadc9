from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.support_learner import make_learner, train_losses
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

SMOOTH = {
    "dense_optimizer": "sgd",
    "table_optimizer": "adagrad",
    "dense_learning_rate": 0.05,
    "learning_rate": 0.05,
}


def _losses(place: Place, settings: dict[str, Any]) -> list[float]:
    return train_losses(place, make_learner(place, **SMOOTH, **settings), [64] * 40)


def _rounded(kind: str, precision: str) -> dict[str, Any]:
    return {
        "sharding_types": [kind],
        "qcomm_forward_precision": precision,
        "qcomm_backward_precision": precision,
    }


def _refusal(place: Place, settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        make_learner(place, **settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        ("table_wise", "fp16"),
        ("table_wise", "bf16"),
        ("table_wise", "int8"),
        ("column_wise", "bf16"),
        ("row_wise", "fp16"),
        ("row_wise", "bf16"),
    ],
)
def test_reduced_precision_communication_learns_almost_equally(
    worlds: Worlds, kind: str, precision: str
) -> None:
    exact = worlds.run(2, _losses, {"sharding_types": [kind]})[0]
    rounded = worlds.run(2, _losses, _rounded(kind, precision))[0]
    assert rounded == pytest.approx(exact, abs=0.02)
    assert rounded != exact


@pytest.mark.parametrize(
    ("kind", "precision", "message"),
    [
        ("row_wise", "int8", "qcomm_forward_precision is int8, but C1 is cut by rows"),
        ("table_wise", "fp8", "qcomm_forward_precision is fp8, which fbgemm has for GPUs only"),
    ],
)
def test_unsupported_communication_precisions_are_refused(
    worlds: Worlds, kind: str, precision: str, message: str
) -> None:
    for error in worlds.run(2, _refusal, _rounded(kind, precision)):
        assert message in error
