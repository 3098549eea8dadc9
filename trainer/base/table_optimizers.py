"""The states of each table optimizer, and the sharding types that it allows."""

from __future__ import annotations

from dataclasses import dataclass

# Sharding types that may split a table's rows.
COLUMN_CUTS = frozenset({"column_wise", "table_column_wise", "grid_shard"})
_WITHOUT_ROW_STATE = {"rowwise_adagrad": "adagrad", "partial_rowwise_adam": "adam"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One state of an optimizer: of the size of the weights, or one number per row."""

    name: str
    one_a_row: bool = False


TABLE_STATES: dict[str, tuple[TableState, ...]] = {
    "sgd": (),
    "adagrad": (TableState(name="adagrad"),),
    "rowwise_adagrad": (TableState(name="rowwise_adagrad", one_a_row=True),),
    "adam": (TableState(name="exp_avg"), TableState(name="exp_avg_sq")),
    "partial_rowwise_adam": (TableState(name="exp_avg"), TableState(name="exp_avg_sq", one_a_row=True)),
}


def explain_column_cut(optimizer: str, cut: str) -> str | None:
    """Return why this optimizer cannot train a table whose rows are split, with the remedy; None if it can.

    One number per row would become one per piece, computed from that piece's gradients only. That trains
    another model, whose state does not fit any other plan.

    Args:
        optimizer: a value of `--table_optimizer`.
        cut: the cause of the split, as the beginning of the sentence.
    """
    if not any(state.one_a_row for state in TABLE_STATES[optimizer]):
        return None
    return (
        f"{cut}, which splits rows, but table_optimizer {optimizer} keeps one number a row: each piece would "
        "get a number of its part alone, which trains another model and makes checkpoints that no other plan "
        f"can load; use table_wise, row_wise or table_row_wise, or set table_optimizer to "
        f"{_WITHOUT_ROW_STATE[optimizer]}"
    )
