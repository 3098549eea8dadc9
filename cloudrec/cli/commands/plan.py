"""The command that compares policies for spot nodes before anything is paid for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudrec.cli.options import output_option
from cloudrec.cli.output import columns, emit
from cloudrec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.planning.spot.compare import Result, Scenario

_MOST_S = 365 * 86_400.0


def _time(unit: float) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    def parse(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
        from cloudrec.spec.durations import seconds_of  # noqa: PLC0415  # `--help` needs none of it

        if value is None:
            return None
        try:
            seconds = seconds_of(value)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} {error}", param=param) from None
        if not 1 <= seconds <= _MOST_S:
            raise click.BadParameter(f"{value!r} is not between 1s and 365d", param=param)
        return seconds / unit

    return parse


_seconds, _hours = _time(1.0), _time(3600.0)


@click.command()
@click.option(
    "--spot",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder with one JSON file a zone: its capacity over time.",
)
@click.option(
    "--work", default="48h", show_default=True, callback=_hours, help="The length of a run, such as 24h."
)
@click.option("--deadline", callback=_hours, help="The time in which that work must be done, such as 30h.")
@click.option(
    "--restart",
    default="300s",
    show_default=True,
    callback=_seconds,
    help="From a request for nodes that succeeds to the next step.",
)
@click.option(
    "--commit", default="30s", show_default=True, callback=_seconds, help="The time that a checkpoint takes."
)
@click.option(
    "--blocking", is_flag=True, help="The steps stop while a checkpoint is written; else for 0.3 s only."
)
@click.option(
    "--spot-price",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    show_default=True,
    help="The price of spot nodes, as a share of the on-demand price.",
)
@click.option(
    "--starts",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="The number of runs, which begin at times spread over the traces.",
)
@output_option
def plan(
    *,
    folder: Path | None,
    work: float,
    deadline: float | None,
    restart: float,
    commit: float,
    spot_price: float,
    starts: int,
    blocking: bool,
) -> None:
    """Compare policies for spot nodes on traces of capacity. Nothing is created or asked.

    Each file in FOLDER is named ZONE_MACHINE.json and has
    {"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, ...]}: 1 where nodes can be had. Prices are shares
    of the on-demand price.
    """
    if folder is None:
        raise UsageError("nothing is given to plan with", remedy="give traces: cloudrec plan --spot FOLDER")
    if deadline is not None and deadline <= work:
        raise UsageError(
            f"a deadline of {deadline:g} h leaves no time beside {work:g} h of work",
            remedy="give a later --deadline, or less --work",
        )
    from cloudrec.app import read_traces, spot_plan  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.planning.spot.compare import WRITE_SLOWDOWN, Scenario  # noqa: PLC0415
    from cloudrec.planning.spot.simulate import Rules  # noqa: PLC0415
    from cloudrec.planning.spot.training import SaveTimes  # noqa: PLC0415

    saver = (
        SaveTimes(stall_s=commit, commit_s=commit)
        if blocking
        else SaveTimes(stall_s=min(0.3, commit), commit_s=commit, slowdown=WRITE_SLOWDOWN)
    )
    scenario = Scenario(
        traces=read_traces(folder),
        rules=Rules(restart_s=restart),
        saver=saver,
        spot_price=spot_price,
        hours=work,
        deadline_hours=deadline,
        starts=starts,
    )
    results = spot_plan(scenario)
    document = {
        "traces": [
            {"name": each.name, "hours": each.length_s / 3600, "capacity": each.share}
            for each in scenario.traces
        ],
        "basis": "simulated",
        "restart_s": restart,
        "commit_s": commit,
        "spot_price": spot_price,
        "work_hours": work,
        "deadline_hours": deadline,
        "results": [asdict(result) for result in results],
    }
    emit(document, _text(scenario, results))


def _text(scenario: Scenario, results: list[Result]) -> str:
    zones = [(each.name, f"{each.length_s / 3600:.0f} h", f"{each.share:.0%}") for each in scenario.traces]
    due = f", due in {scenario.deadline_hours:g} h" if scenario.deadline_hours is not None else ""
    costs = (f"restart {scenario.rules.restart_s:g} s", f"checkpoint {scenario.saver.commit_s:g} s")
    lines = [
        columns(("TRACE", "LENGTH", "CAPACITY"), zones),
        "",
        ", ".join((f"{scenario.starts} simulated runs of {scenario.hours:g} h{due}", *costs)),
        "",
    ]
    if scenario.deadline_hours is not None:
        lines.append(
            columns(
                ("POLICY", "DEADLINES MET", "COST", "MOVES"),
                [
                    (
                        each.policy,
                        f"{each.met} of {each.runs}",
                        _x(each.usd_per_hour),
                        _number(each.moves),
                    )
                    for each in results
                ],
            )
        )
    else:
        lines.append(
            columns(
                ("POLICY", "GOODPUT", "OF ORACLE", "COST", "OF ORACLE", "MOVES", "WAITING"),
                [
                    (
                        each.policy,
                        f"{each.goodput:.3f}",
                        _share(each.of_oracle),
                        _x(each.usd_per_hour),
                        _share(each.cost_of_oracle),
                        _number(each.moves),
                        _share(each.waited),
                    )
                    for each in results
                ],
            )
        )
    lines.append("")
    lines.append("COST: for an hour of work, as a multiple of on-demand nodes that never end.")
    return "\n".join(lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _x(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}x"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
