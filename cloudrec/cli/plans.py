"""The engine's plans as tables and as JSON documents."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cloudrec.cli.output import columns, duration
from cloudrec.engine.cost import hourly_text, price_text
from cloudrec.engine.plan import PlanStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.app import Removal
    from cloudrec.engine.cost import Cost
    from cloudrec.engine.journal import Missing
    from cloudrec.engine.plan import Action, Plan

_WIDEST = 70  # characters of a resource's properties in a table
_COLUMNS, _NAMES = 80, 7  # characters of a summary's line, and of the name that it begins with
_HOUR_S = 3600.0
_MANAGED = "a keeper creates a run's nodes and removes them; else --no-managed"
_HOURS_A_MONTH = 730  # as in the vendors' price lists


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as a JSON document."""
    return {
        **plan.cost.to_json(),
        "idle": plan.idle.to_json(),
        "at_most": plan.most.to_json(),
        "upfront": asdict(plan.upfront) if plan.upfront is not None else None,
        "data": asdict(plan.data) if plan.data else None,
        "storage": plan.storage or None,
        "actions": [
            {
                "step": action.step.value,
                "resource": action.key,
                "reason": action.reason,
                "hourly_usd": action.hourly_usd,
                "properties": _properties(action),
            }
            for action in plan.actions
        ],
    }


def _properties(action: Action) -> dict[str, Any]:
    resource = action.candidate or action.resource
    if resource is not None:
        return resource.properties.requested()
    return dict(action.observed.properties) if action.observed is not None else {}


def plan_summary(plan: Plan) -> str:
    """Format what one decides by in about eight lines of at most 80 characters."""
    steps = Counter(action.step for action in plan.actions)
    counts = (
        ", ".join(f"{steps[step]} to {step.value}" for step in PlanStep if steps[step]) or "nothing to do"
    )
    rows = [*_nodes(plan), *([("data", plan.data.line)] if plan.data else [])]
    if plan.storage:
        rows.append(("storage", plan.storage))
    if plan.upfront is not None:
        paid = f"{price_text(plan.upfront.usd)} in advance, not refunded, for {plan.upfront.what}"
        rows.append(("buys", paid))
    rows.append(("now", plan.cost.text))
    if plan.most != plan.cost:
        rows.append(("at most", f"{plan.most.text}, with the most expensive choice"))
    if plan.idle != plan.cost:
        rows.append(("idle", _idle(plan.idle)))
    rows.append(("ends", _end(plan)))
    if plan.minutes is not None:
        rows.append(("ready", f"in {plan.minutes[0]} to {plan.minutes[1]} minutes, as a rule"))
    return "\n".join(
        [f"cluster {plan.cluster}: {counts} (--verbose lists each)", *(_wrapped(*row) for row in rows)]
    )


def _nodes(plan: Plan) -> list[tuple[str, str]]:
    """Return the lines on the GPU nodes: how many of which type, where they are tried, and their price."""
    rows: list[tuple[str, str]] = []
    chosen = [
        (action.candidate, action.resource.candidates)
        for action in plan.actions
        if action.resource is not None and action.resource.candidates
    ]
    if plan.standby is not None:
        chosen.append((None, plan.standby.candidates))
    for candidate, choices in chosen:
        asked = [one.properties.requested() for one in choices]
        # Nodes that come later, with their block, count too.
        count = choices[0].nodes or asked[0].get("nodes", 0)
        gpus = {one.node_type: one.gpus for one in choices}
        types = " or ".join(f"{count} x {name} ({count * each} GPUs)" for name, each in gpus.items())
        zones = _distinct(
            str(one["zone"]).removeprefix(plan.region).lstrip("-") for one in asked if "zone" in one
        )
        rows += [
            ("nodes", f"{types}; {', then '.join(_distinct(str(one.get('capacity', '')) for one in asked))}"),
            ("where", f"{plan.region}, zones tried: {', '.join(zones)}" if zones else plan.region),
        ]
        if priced := (candidate or choices[0]).priced:
            rows.append(("price", priced))
    if plan.standby is not None:
        rows.append(("managed", _MANAGED))
    return rows


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


def _end(plan: Plan) -> str:
    if plan.expires is None:
        return "never: there is no --ttl and no --budget"
    usd, hours = plan.most.usd, plan.left_s / _HOUR_S
    if plan.upfront is not None and usd is not None:
        usd = None if plan.upfront.usd is None else usd + plan.upfront.usd / hours
    most = f"costs at most ${usd * hours:,.2f} until then" if usd is not None else "at an unknown cost"
    return f"{plan.expires}, in {duration(plan.left_s)}; {most}"


def _idle(cost: Cost) -> str:
    month = f" (${cost.usd * _HOURS_A_MONTH:,.0f} a month)" if cost.usd is not None else ""
    return f"{cost.text}{month} without GPU nodes"


def _wrapped(name: str, text: str) -> str:
    return textwrap.fill(
        text,
        width=_COLUMNS,
        initial_indent=f"  {name.ljust(_NAMES)}  ",
        subsequent_indent=" " * (_NAMES + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def plan_text(plan: Plan) -> str:
    """Format a plan as a table, with its $/h."""
    rows = [
        (action.step.value, action.key, price_text(action.hourly_usd), action.reason, _shown(action))
        for action in plan.actions
    ]
    total = f"{len(plan.changes)} to change, {len(plan.actions) - len(plan.changes)} to keep; "
    text = columns(("STEP", "RESOURCE", "$/H", "WHY", "WHAT"), rows)
    for action in plan.actions:
        if action.resource is not None and action.resource.candidates:
            text += f"\n{action.key} is the first of these that is available:"
            text += "".join(
                f"\n  {number}. {one.name}  {hourly_text(one.hourly_usd)}"
                for number, one in enumerate(action.resource.candidates, start=1)
            )
    if plan.upfront is not None:
        text += f"\nbuys {plan.upfront.what} for {price_text(plan.upfront.usd)} in advance"
    at_most = f"; at most {plan.most.text}" if plan.most != plan.cost else ""
    return text + f"\n{total}{plan.cost.text} in all{at_most}"


def _shown(action: Action) -> str:
    """Format properties in one line, cut to fit; `-o json` has all of them."""
    text = ", ".join(f"{key}={value}" for key, value in _properties(action).items())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def not_ready_text(cluster: str, missing: Sequence[Missing], *, cost: str) -> str:
    """Format what a cluster lacks, its cost, the remedy, and how to remove it."""
    lines = [f"cluster {cluster!r} exists and costs {cost}, but it is NOT READY:"]
    for each in missing:
        lines += [f"  {each.what}: {each.reason}", f"    remedy: {each.remedy}"]
    return "\n".join([*lines, f"`cloudrec down --cluster {cluster}` removes it"])


def removal_text(removal: Removal) -> str:
    """Format what would be removed."""
    rows: list[tuple[object, ...]] = [
        (action.step.value, action.key, price_text(action.hourly_usd), action.reason)
        for action in removal.plan.actions
    ]
    for run in removal.runs:
        end = "" if run.state.is_final else "stop, then "
        step = f"{end}{'keep' if removal.keep_data else 'delete'}"
        rows.append((step, f"run/{run.name}", None, f"{run.state}, on this cluster"))
    return columns(("STEP", "RESOURCE", "$/H", "WHY"), rows)
