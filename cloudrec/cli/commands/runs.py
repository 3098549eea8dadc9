"""The commands for runs: status, logs, stop, report, fetch."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.console import announce
from cloudrec.cli.options import complete_runs, context, dry_run_option, output_option, yes_option
from cloudrec.cli.output import chosen_format, columns, emit, next_step, wrapped
from cloudrec.cli.plain import coloured
from cloudrec.cli.run_tables import event_text, goodput_line, runs_table, workers_table
from cloudrec.errors import UsageError

_SHOWN = 20

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.app import AppContext, ClusterView, KeeperView
    from cloudrec.observe.runs import RunView


@click.command()
@click.argument("name", required=False, shell_complete=complete_runs)
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between refreshes, with --watch.",
)
@click.option("--events", is_flag=True, help="List the events of a cluster or run, oldest first.")
@output_option
def status(name: str | None, interval: float, *, watch: bool, events: bool) -> None:
    """Show all clusters and runs, or those named NAME."""
    if watch and chosen_format() != "table":
        raise UsageError(
            "--watch prints repeatedly, and -o prints one document", remedy="use -o or --watch, not both"
        )
    application = context()
    if not watch:
        document, text, _ = _shown(application, name, events=events, sends=True)
        emit(document, text)
        return
    from cloudrec.cli.watching import watch as repeat  # noqa: PLC0415  # only with --watch

    repeat(lambda: _shown(application, name, events=events)[1:], interval)


@click.command()
@click.argument("name", required=False)
@output_option
def queue(name: str | None) -> None:
    """Show the runs of managed clusters that have nodes or wait for them, or those of the cluster NAME."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    application = context()
    if name is not None and all(record.name != name for record in application.journal.clusters()):
        raise UsageError(f"there is no cluster {name!r}", remedy="`cloudrec status` lists all clusters")
    found = app.keepers(application, name)
    turns = [
        {"cluster": keeper.cluster, "turn": turn, "run": run, "state": state, "reason": reason or None}
        for keeper in found
        for turn, (run, state, reason) in enumerate(_turns(keeper))
    ]
    if turns:
        rows = [(each["cluster"], each["turn"], each["run"], each["state"], each["reason"]) for each in turns]
        text = columns(("CLUSTER", "TURN", "RUN", "STATE", "REASON"), rows)
    else:
        text = "no run waits or runs" if found else "no managed cluster is up (cloudrec up --managed)"
    emit({"queue": turns}, text)


def _turns(keeper: KeeperView) -> list[tuple[str, str, str]]:
    """Return the runs in the order of their turns, each with its state and the reason."""
    first = [
        (run.name, "has nodes" if run.has_nodes else "waits for nodes", run.reason) for run in keeper.runs
    ]
    elsewhere = [(run, f"in cluster {cluster}", "") for run, cluster in keeper.elsewhere.items()]
    return [*first, *((run, "waits for its turn", "") for run in keeper.queue), *elsewhere]


@click.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option("--rank", type=int, default=0, show_default=True, help="The rank whose output is printed.")
@click.option("--follow", is_flag=True, help="Print new lines until the run ends.")
@click.option("--tail", type=int, metavar="N", help="Start with the last N lines.")
def logs(run: str | None, rank: int, tail: int | None, *, follow: bool) -> None:
    """Print the output of one rank of RUN (default: the newest run), all restarts included."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.observe.logs import read_logs  # noqa: PLC0415

    folder, is_silent = app.run_folder(context(), run), tail != 0
    is_terminal = sys.stdout.isatty()  # a pipe or a file gets the bytes of the log
    for line in read_logs(folder, rank=rank, follow=follow, tail=tail):
        click.echo(coloured(line) if is_terminal else line)
        is_silent = False
    if is_silent:
        announce(
            f"rank {rank} of {folder.name} has no saved output: "
            f"`cloudrec status {folder.name}` shows whether its node is running"
        )


@click.command()
@click.argument("run", shell_complete=complete_runs)
@click.option(
    "--grace",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Grace period before it is killed  [default: the run's]",
)
@dry_run_option
@yes_option
@output_option
def stop(run: str, grace: float | None, *, dry_run: bool, yes: bool) -> None:
    """Stop RUN gracefully: it writes a checkpoint and ends. `train --resume` continues it."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    del yes  # a stop loses nothing, so there is no question; accepted so that scripts can always pass --yes
    application = context()
    (view,) = app.runs(application, run)
    if dry_run:
        announce(f"would stop run {run} ({view.state})")
    else:
        from cloudrec.cli.interrupted import RunInHand, in_hand  # noqa: PLC0415  # `status` needs none of it

        in_hand(RunInHand(app=application, name=run, is_stop=True).messages)
        view = app.stop_run(application, run, grace_s=grace)
    emit({"dry_run": dry_run, "runs": [view.to_json()]}, runs_table([view]))
    if dry_run:
        next_step("the same command without --dry-run stops it")
    else:
        next_step(f"`cloudrec train --resume {run}` continues it", f"`cloudrec report {run}` reports on it")


@click.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="The file  [default: ./RUN.html]"
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@output_option
def report(run: str | None, out: Path | None, *, force: bool) -> None:
    """Write one self-contained HTML page about RUN (default: the newest run)."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.observe.page.report import write_report  # noqa: PLC0415

    application = context()
    folder = app.run_folder(application, run)
    target = out or Path(f"{folder.name}.html")
    if target.exists() and not force:
        raise UsageError(
            f"{target} exists", remedy="choose another file with --out, or overwrite it with --force"
        )
    write_report(folder, target, cost_usd=app.run_cost(application, folder.name))
    emit({"report": {"run": folder.name, "path": str(target.absolute())}}, f"wrote {target}")
    next_step(f"open {target} in a browser")


@click.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), help="The folder  [default: ./RUN]")
@click.option("--checkpoints", is_flag=True, help="Also copy the checkpoints.")
@output_option
def fetch(run: str | None, to: Path | None, *, checkpoints: bool) -> int:
    """Copy the results of RUN (default: the newest run) to a local folder, wherever it ran.

    A file whose name leads out of that folder is skipped with a warning, and the exit code is 1.
    """
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    application = context()
    folder = app.run_folder(application, run)
    target = to or Path(folder.name)
    fetched = app.fetch(application, folder.name, target, checkpoints=checkpoints)
    for each in fetched.skipped[:_SHOWN]:
        announce(f"warning: a file was skipped: {each.reason}")
    if fetched.skipped:
        announce(
            f"warning: {len(fetched.skipped)} files were skipped; their names are not safe on this machine"
        )
    document = {
        "fetched": {
            "run": folder.name,
            "path": str(target.absolute()),
            "files": fetched.files,
            "skipped": [asdict(each) for each in fetched.skipped],
        }
    }
    emit(document, f"{len(fetched.files)} files of run {folder.name} are in {target}")
    next_step(f"`cloudrec report {folder.name}` shows them on one page")
    return 1 if fetched.skipped else 0


def _shown(
    application: AppContext, name: str | None, *, events: bool, sends: bool = False
) -> tuple[Callable[[], dict[str, Any]], str, dict[str, str]]:
    """Return the document, the text for people, and the state of each cluster and run."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    if name is not None and "://" in name:  # an engine's own id of a run
        name = app.run_folder(application, name).name
    is_known = any(name in {None, record.name} for record in application.journal.clusters())
    clusters = app.clusters(application, name) if is_known else []  # a run needs no request to the cloud
    runs = app.runs(application) if name is None else app.runs_of(application, name)
    if name is not None and not clusters and not runs:
        raise UsageError(
            f"there is no cluster or run {name!r}", remedy="`cloudrec status` lists all clusters and runs"
        )
    happened = _events(application, clusters, runs) if events else []
    notifying = [run for run in runs if run.notifies]  # without any, the modules for them are not imported
    if sends and notifying:
        app.await_ends(application, notifying)
    # A cluster that does not answer, or whose keeper is silent, has a line that says so.
    answering = [cluster.name for cluster in clusters if not cluster.problem and not cluster.alarm]
    undelivered = app.failing(application, answering, notifying) if answering or notifying else []

    def document() -> dict[str, Any]:
        return {
            "clusters": [_cluster_document(cluster) for cluster in clusters],
            "runs": [run.to_json() for run in runs],
            **({"events": [event for event, _ in happened]} if events else {}),
            **({"undelivered": [asdict(each) for each in undelivered]} if undelivered else {}),
        }

    text: list[str] = []
    if clusters or name is None:  # else NAME is a run
        from cloudrec.cli.cluster_tables import clusters_table  # noqa: PLC0415  # `logs` needs none of it

        text.append(clusters_table(clusters, one=name is not None))
    text.append(runs_table(runs, one=name is not None and len(runs) == 1))
    if name is not None:
        text += [goodput_line(run) for run in runs if run.goodput_parts]
        text += [workers_table(run) for run in runs if run.workers]
    if undelivered:
        text.append("\n".join(each.text for each in undelivered))
    if events:
        text.append(_events_table(happened, is_of_one=name is not None and not clusters and len(runs) == 1))
    states = {f"cluster {each.name}": _state_line(each) for each in clusters}
    states |= {f"run {run.name}": str(run.state) for run in runs}
    return document, "\n\n".join(text), states


def _state_line(cluster: ClusterView) -> str:
    nodes = cluster.size.text
    return cluster.state if nodes is None else f"{cluster.state}, nodes: {nodes}"


def _events_table(happened: Sequence[tuple[dict[str, Any], str]], *, is_of_one: bool) -> str:
    """Format events for people; a run that was named is not named in each line."""
    names = ("TIME", "EVENT", "DETAIL") if is_of_one else ("TIME", "OF", "EVENT", "DETAIL")
    rows = [
        {"TIME": _clock(event["time"]), "OF": event["of"], "EVENT": event["event"], "DETAIL": detail}
        for event, detail in happened
    ]
    return wrapped(names, [[row[name] for name in names] for row in rows], texts=["DETAIL"])


def _events(
    application: AppContext, clusters: Sequence[ClusterView], runs: Sequence[RunView]
) -> list[tuple[dict[str, Any], str]]:
    """Return the events, oldest first, each with its detail for people."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    found: list[dict[str, Any]] = [
        {"time": event.time, "of": event.key, "event": event.event, "detail": event.detail}
        for cluster in clusters
        for event in application.journal.events(cluster.name)
    ]
    found += [
        {
            "time": event.at,
            "of": f"run/{event.run}" if event.run else f"cluster/{cluster.name}",
            "event": "keeper",
            "detail": event.text,
        }
        for cluster in clusters
        if cluster.keeper is not None
        for event in cluster.keeper.events
    ]
    pairs = [(event, event["detail"]) for event in found]
    for run in runs:
        if run.launcher is None:  # damaged: its reason is shown already
            continue
        for event in app.run_folder(application, run.name).ledger.read():
            detail = ", ".join(f"{key}={value}" for key, value in event.details.items())
            document = {
                "time": event.time,
                "of": f"run/{run.name}",
                "event": event.event,
                "detail": detail,
            }
            pairs.append((document, event_text(event.details)))
    return sorted(pairs, key=lambda pair: pair[0]["time"])


def _cluster_document(cluster: ClusterView) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "provider": cluster.provider,
        "owner": cluster.owner,
        "state": cluster.state,
        **cluster.cost.to_json(),
        "spent_usd": cluster.spent_usd,
        "created": cluster.created,
        "expires": cluster.expires,
        "region": cluster.region or None,
        "budget_usd": cluster.budget_usd,
        "budget_left_usd": cluster.budget_left_usd,
        "nodes": {
            "running": cluster.size.running,
            "wanted": cluster.size.wanted,
            "types": list(cluster.size.node_types),
        },
        "gpus": cluster.size.gpus,
        "missing": [asdict(each) for each in cluster.missing],
        "keeper": asdict(cluster.keeper) if cluster.keeper is not None else None,
        "problem": cluster.problem or None,
        "alarm": cluster.alarm or None,
        "resources": [
            {**asdict(seen), "condition": seen.condition.value, "cluster": seen.cluster}
            for seen in cluster.resources
        ],
    }


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
