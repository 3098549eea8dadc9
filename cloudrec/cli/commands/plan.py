"""The command that plans before anything is paid for: where a run fits, its speed and its cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cloudrec.cli.options import context, file_option, load_spec, output_option, refuse_without, set_option
from cloudrec.cli.output import columns, emit, next_step
from cloudrec.errors import UsageError
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cloudrec.planning.fit.offers import Order
    from cloudrec.planning.spot.compare import Result, Scenario
    from cloudrec.spec.load import Loaded

_CAPACITIES = ("on-demand", "spot")
_ORDERS: dict[str, Order] = {"cost": "usd", "hours": "hours", "samples": "samples", "usd": "usd"}
# The options that have an effect only with --spot.
_OF_SPOT = ("work", "deadline", "restart", "notice", "commit", "blocking", "spot_price", "starts", "nodes")
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
@file_option
@click.option("--dataset", metavar="URI", help="The dataset: its tables and its samples.")
@click.option("--gpus", "gpu", metavar="MODEL", help="Only machines with this GPU, such as H100.")
@click.option("--provider", metavar="NAME", help="Only this cloud.")
@click.option("--regions", metavar="A,B", help="Only these regions  [default: each type's cheapest]")
@click.option(
    "--capacity",
    type=click.Choice([*_CAPACITIES, "any"]),
    default="on-demand",
    show_default=True,
    help="The capacity type of the nodes.",
)
@click.option(
    "--max-nodes",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="The most nodes; 1, 2, 4 and so on are tried.",
)
@click.option("--samples", type=click.IntRange(min=1), help="Samples of an epoch  [default: the dataset's]")
@click.option(
    "--ids",
    type=click.FloatRange(min=0, min_open=True),
    help="Ids of a sample over all tables  [default: one a table]",
)
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Only what is done in this time.")
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Only what costs at most this.",
)
@click.option(
    "--sort",
    type=click.Choice([*_ORDERS]),
    default="cost",
    show_default=True,
    help="The best first: by cost (or usd), time or samples/s.",
)
@click.option("--explain", metavar="TYPE", help="Memory of a machine type by table and GPU, time by part.")
@click.option(
    "--calibrate", is_flag=True, help="First time the trainer on this machine, for at most a minute."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a picture: cost against time, and the table.",
)
@click.option("--all", "everything", is_flag=True, help="Every number of nodes of every type.")
@click.option(
    "--spot",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Compare policies on traces: a JSON file a zone.",
)
@click.option(
    "--work", default="48h", show_default=True, callback=_hours, help="With --spot: the length of a run."
)
@click.option("--deadline", callback=_hours, help="With --spot: the time in which it must be done.")
@click.option(
    "--restart",
    default="300s",
    show_default=True,
    callback=_seconds,
    help="With --spot: from nodes that are given to the next step.",
)
@click.option(
    "--notice",
    default="120s",
    show_default=True,
    callback=_seconds,
    help="With --spot: from a notice to the end (AWS 120s, Azure 30s).",
)
@click.option(
    "--commit",
    default="30s",
    show_default=True,
    callback=_seconds,
    help="With --spot: the time that a checkpoint takes.",
)
@click.option(
    "--blocking", is_flag=True, help="With --spot: steps stop while a checkpoint is written; else 0.3 s."
)
@click.option(
    "--spot-price",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    show_default=True,
    help="With --spot: the price of spot nodes, as a share of the on-demand price.",
)
@click.option(
    "--starts",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="With --spot: the number of runs, spread over the traces.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1, 1_000_000),
    help="With --spot: the nodes of the run, where traces have numbers of nodes (default: the largest).",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@set_option
@output_option
def plan(
    *,
    file: Path | None,
    folder: Path | None,
    flags: tuple[str, ...],
    settings: tuple[str, ...],
    dataset: str | None,
    work: float,
    deadline: float | None,
    restart: float,
    notice: float,
    commit: float,
    spot_price: float,
    starts: int,
    nodes: int | None,
    blocking: bool,
    **asked: Any,  # noqa: ANN401 - the options of `_plan_run`, which types them
) -> None:
    """Show where the run of the specification fits, how fast it is and what it costs.

    Nothing is created, and no cloud is asked. FLAGS, after --, are the trainer's.

    \b
    cloudrec plan --dataset s3://bucket/data
    cloudrec plan --gpus H100 --hours 24 --budget 500
    cloudrec plan --explain p5.48xlarge
    cloudrec plan --calibrate
    cloudrec plan --html plan.html
    cloudrec plan --samples 4000000000 -- --num_embeddings 10000000
    cloudrec plan --spot traces --deadline 60h

    With --spot, each file in FOLDER is named ZONE_MACHINE.json and has
    {"metadata": {"gap_seconds": 600}, "data": [1, 1, 0, ...]}: 1 where nodes can be had, or the number of
    nodes, as in the traces of github.com/skypilot-org/spot-traces. Prices are shares of the on-demand price.
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    if folder is None:
        refuse_without("--spot FOLDER", _given(_OF_SPOT))
        loaded = load_spec(file, settings, {("trainer", "dataset_path"): ("--dataset", dataset)})
        _plan_run(loaded, flags, **asked)
        return
    if deadline is not None and deadline <= work:
        raise UsageError(
            f"a deadline of {deadline:g} h leaves no time beside {work:g} h of work",
            remedy="give a later --deadline, or less --work",
        )
    saver = (commit, commit, 0.0) if blocking else (min(0.3, commit), commit, None)
    _plan_spot(
        folder,
        nodes=nodes,
        work=work,
        deadline=deadline,
        timing=(restart, notice),
        saver=saver,
        spot_price=spot_price,
        starts=starts,
    )


def _given(names: Iterable[str]) -> list[str]:
    """Return those of these options that are on the command line."""
    source = click.get_current_context().get_parameter_source
    return [f"--{name.replace('_', '-')}" for name in names if source(name) is ParameterSource.COMMANDLINE]


def _plan_run(
    loaded: Loaded,
    flags: tuple[str, ...],
    *,
    gpu: str | None,
    provider: str | None,
    regions: str | None,
    capacity: str,
    max_nodes: int,
    samples: int | None,
    ids: float | None,
    hours: float | None,
    budget: float | None,
    sort: str,
    explain: str | None,
    everything: bool,
    calibrate: bool,
    html: Path | None,
) -> None:
    """Print where the run fits, how fast it is and what it costs."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.cli import run_plan as text  # noqa: PLC0415
    from cloudrec.home import write_atomically  # noqa: PLC0415
    from cloudrec.planning.fit.offers import best_of_each, ranked  # noqa: PLC0415

    application = context()
    wish = app.PlanWish(
        gpu=gpu,
        provider=provider,
        regions=tuple(each.strip() for each in regions.split(",") if each.strip()) if regions else (),
        capacities=_CAPACITIES if capacity == "any" else (capacity,),
        most_nodes=max_nodes,
        samples=samples,
        ids=ids,
    )
    if calibrate:
        app.calibrate(application)
    plan = app.run_plan(application, loaded, flags, wish)
    if explain == text.THIS_MACHINE and plan.here:
        emit({"offers": [text.own_row(each) for each in plan.here]}, text.own_explanation(plan))
        return
    if explain is not None:
        known = sorted({each.machine.instance_type for each in plan.offers})
        chosen = [each for each in plan.offers if each.machine.instance_type == explain]
        if not chosen:
            raise UsageError(f"no machine type {explain!r} fits", remedy=did_you_mean(explain, known))
        emit({"offers": [text.row(each) for each in chosen]}, text.explanation(plan, chosen))
        return
    offers = [
        each
        for each in ranked(plan.offers, _ORDERS[sort])
        # What is not known is not within a limit.
        if (hours is None or (each.hours is not None and each.hours <= hours))
        and (budget is None or (each.usd is not None and each.usd <= budget))
    ]
    if html is not None:
        write_atomically(html, text.page(plan, offers))
        click.echo(f"the picture is in {html}", err=True)
    if not everything:
        offers = best_of_each(offers)
    rows = [text.row(each, number) for number, each in enumerate(offers, start=1)]
    app.keep_plan(application, rows)
    refused = [text.row(each) for each in plan.offers if each.refusal]
    document = {
        "tables_from": plan.tables_from,
        "samples": plan.work.samples_in_all,
        "assumes": plan.assumes,
    }
    here = [text.own_row(each) for each in plan.here]
    emit({**document, "offers": [*rows, *here, *refused]}, text.table(plan, offers, everything=everything))
    if offers:
        next_step(
            "`cloudrec plan --explain TYPE` shows memory and time by part",
            "`cloudrec up --from-plan NUMBER` creates the cluster",
        )


def _plan_spot(
    folder: Path,
    *,
    nodes: int | None,
    work: float,
    deadline: float | None,
    timing: tuple[float, float],
    saver: tuple[float, float, float | None],
    spot_price: float,
    starts: int,
) -> None:
    """Print what policies for spot nodes achieve on traces."""
    from cloudrec.app import read_traces, spot_plan  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.planning.spot.compare import WRITE_SLOWDOWN, Scenario  # noqa: PLC0415
    from cloudrec.planning.spot.simulate import Rules  # noqa: PLC0415
    from cloudrec.planning.spot.training import SaveTimes  # noqa: PLC0415

    (restart, notice), (stall, commit, slowdown) = timing, saver
    scenario = Scenario(
        traces=read_traces(folder, nodes),
        rules=Rules(restart_s=restart, notice_s=notice),
        saver=SaveTimes(
            stall_s=stall, commit_s=commit, slowdown=WRITE_SLOWDOWN if slowdown is None else slowdown
        ),
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
        "notice_s": notice,
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
    rules, saver = scenario.rules, scenario.saver
    costs = (
        f"restart {rules.restart_s:g} s",
        f"notice {rules.notice_s:g} s",
        f"checkpoint {saver.commit_s:g} s",
    )
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
