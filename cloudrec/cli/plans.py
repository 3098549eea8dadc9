"""Plans of the engine as people and programs see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.cli.output import columns

if TYPE_CHECKING:
    from cloudrec.app import Removal
    from cloudrec.engine.plan import Action, Plan

_WIDEST = 70  # characters of a thing's properties in a table


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return what would be done, for programs."""
    return {
        "hourly_usd": plan.hourly_usd,
        "actions": [
            {
                "step": action.step.value,
                "resource": action.key,
                "reason": action.reason,
                "hourly_usd": action.hourly_usd,
                "properties": dict(_properties(action)),
            }
            for action in plan.actions
        ],
    }


def _properties(action: Action) -> Any:  # noqa: ANN401  # whatever the provider describes
    source = action.candidate or action.resource or action.observed
    return source.properties if source is not None else {}


def plan_text(plan: Plan) -> str:
    """Lay out what would be done, with its $/h."""
    rows = [
        (action.step.value, action.key, f"${action.hourly_usd:.2f}", action.reason, _shown(action))
        for action in plan.actions
    ]
    total = f"{len(plan.changes)} to change, {len(plan.actions) - len(plan.changes)} to keep; "
    text = columns(("STEP", "RESOURCE", "$/H", "WHY", "WHAT"), rows)
    for action in plan.actions:
        if action.resource is not None and action.resource.candidates:
            text += f"\n{action.key} is the first of these that can be had:"
            text += "".join(
                f"\n  {number}. {one.name}  ${one.hourly_usd:.2f}/h"
                for number, one in enumerate(action.resource.candidates, start=1)
            )
    return text + f"\n{total}${plan.hourly_usd:.2f}/h in all"


def _shown(action: Action) -> str:
    """Lay properties out in a line that fits; `-o json` has all of them."""
    text = ", ".join(f"{key}={value}" for key, value in _properties(action).items())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def removal_text(removal: Removal) -> str:
    """Lay out what would be removed."""
    rows: list[tuple[object, ...]] = [
        (action.step.value, action.key, f"${action.hourly_usd:.2f}", action.reason)
        for action in removal.plan.actions
    ]
    for run in removal.runs:
        end = "" if run.state.is_final else "stop, then "
        step = f"{end}{'keep' if removal.keep_data else 'delete'}"
        rows.append((step, f"run/{run.name}", "$0.00", f"{run.state}, of this cluster"))
    return columns(("STEP", "RESOURCE", "$/H", "WHY"), rows)
