"""`make live PROVIDER=aws|azure|gcp`: the README's line in a real account, for money, and always `down`.

    up && data push && train --nodes 2 && logs --follow && down

The plan and the most that it can cost are shown first, and one has to type the cluster's name. `up` gets a
budget and a time to live, so the cloud ends the nodes even if this machine dies; `down` runs after a failure,
Ctrl-C and SIGTERM, too, and is repeated if it fails. A report lists every command with its duration and its
exit code; it is written after each command.

Variables: PROVIDER; SANDBOX=1 runs the same on the provider's stand-in, without an account; BUDGET (USD, 20)
and TTL (2h) are the caps; INSTANCE_TYPES (the cheapest with a GPU); REPORT (the file); CONFIRM=cloudrec-live
answers the question; TRAIN_FLAGS are more flags of the trainer.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cloudrec.spec.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME = "cloudrec-live"
NODES = 2
CHEAPEST = {"aws": "g6.xlarge", "azure": "Standard_NC4as_T4_v3", "gcp": "g2-standard-4"}  # one GPU each
ROWS = {"real": 200_000, "sandbox": 4_000}
TRAINER = ("--batch_size", "64", "--checkpoint_interval", "20")
_TAIL = 40  # lines of a command's output that the report keeps
_REMOVALS = 3  # attempts
_GRACE_S = 60.0  # for a command to end after SIGTERM
_REMAIN, _DECLINED, _USAGE, _FAILED = 5, 6, 2, 1


class Stopped(Exception):  # noqa: N818 - no error: a signal, on purpose
    """A signal asked this program to end."""


class Report:
    """The commands that were run; the file is complete after each of them.

    Args:
        path: the file.
        facts: what was asked for.
    """

    def __init__(self, path: Path, facts: Mapping[str, object]) -> None:
        self.path = path
        self.document: dict[str, Any] = {"schema_version": 1, **facts, "result": "unfinished", "commands": []}
        self.write()

    def begin(self, words: Sequence[str]) -> dict[str, Any]:
        """Note that a command begins."""
        entry: dict[str, Any] = {
            "command": shlex.join(words),
            "began": _now(),
            "seconds": None,
            "exit_code": None,
            "output": [],
        }
        self.document["commands"].append(entry)
        self.write()
        return entry

    def write(self) -> None:
        """Replace the file."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.document, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.path)


class Laptop:
    """Runs the commands of `cloudrec`, and notes them in a report.

    Args:
        report: the report.
        sandbox: whether they run on stand-ins.
    """

    def __init__(self, report: Report, *, sandbox: bool) -> None:
        self._report = report
        self._options = ("--sandbox",) if sandbox else ()

    def run(self, *words: str, protected: bool = False) -> tuple[int, str]:
        """Run a command with its output on this terminal; return its exit code and its stdout.

        Args:
            words: the command.
            protected: whether Ctrl-C on this terminal must not reach it.
        """
        command = ("cloudrec", *self._options, *words)
        print(f"\n$ {shlex.join(command)}", flush=True)
        entry, began = self._report.begin(command), time.monotonic()
        tail: deque[str] = deque(maxlen=_TAIL)
        lines: list[str] = []
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if "json" not in words else None,
            text=True,
            start_new_session=protected,
        )
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip("\n"))
                lines.append(line)
                if "json" not in words:
                    print(line, end="", flush=True)
            process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            entry |= {"seconds": round(time.monotonic() - began, 1), "exit_code": process.returncode}
            entry["output"] = list(tail)
            self._report.write()
        return process.returncode, "".join(lines)

    def end_sandbox(self, provider: str) -> None:
        """End the stand-ins; its account is gone with them."""
        self._options = ()
        self.run("sandbox", "stop", provider, protected=True)

    def ask(self, *words: str) -> Any:  # noqa: ANN401 - JSON
        """Run a command and return its JSON document; None if it fails."""
        code, text = self.run(*words, "-o", "json")
        return json.loads(text) if code == 0 else None


def main() -> int:
    """Return 0 if every command succeeded, the run finished, and nothing is left."""
    given = os.environ
    provider, sandbox = given.get("PROVIDER", ""), given.get("SANDBOX", "") not in ("", "0")
    if provider not in CHEAPEST:
        print(f"PROVIDER is {provider!r}; it can be {', '.join(sorted(CHEAPEST))}", file=sys.stderr)
        return _USAGE
    budget, ttl = given.get("BUDGET") or "20", given.get("TTL") or "2h"
    types = given.get("INSTANCE_TYPES") or CHEAPEST[provider]
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    place = "sandbox" if sandbox else "real"
    path = Path(given.get("REPORT") or f"live-{provider}-{place}-{stamp}.json").absolute()
    facts = {"provider": provider, "account": place, "began": _now(), "budget_usd": float(budget), "ttl": ttl}
    report = Report(path, {**facts, "instance_types": types, "nodes": NODES})
    laptop = Laptop(report, sandbox=sandbox)
    signal.signal(signal.SIGTERM, _stop)
    caps = ("--nodes", str(NODES), "--instance-types", types, "--ttl", ttl, "--budget", budget)
    try:
        result = _asked(laptop, report, ("up", provider, "--cluster", NAME, *caps), place)
    except (Stopped, KeyboardInterrupt):
        result = "interrupted"
    if sandbox:
        laptop.end_sandbox(provider)
    report.document |= {"result": result, "ended": _now()}
    report.write()
    print(f"\n{result}; the report is {path}")
    return {"succeeded": 0, "declined": _DECLINED, "resources remain": _REMAIN}.get(result, _FAILED)


def _asked(laptop: Laptop, report: Report, up: Sequence[str], place: str) -> str:
    """Show the plan, ask, and run the line; return the result."""
    planned = laptop.ask(*up, "--dry-run")
    if planned is None:
        return "refused before anything was made"
    (plan,) = planned["clusters"]
    report.document["plan"] = {key: plan[key] for key in ("hourly_usd", "known_hourly_usd", "unknown_prices")}
    print(f"\n{len(plan['actions'])} resources in a {place} account, {price(plan)}; {most(plan, report)}")
    if not _confirmed():
        return "declined"
    result, left = "failed", None
    try:
        result = _the_line(laptop, up, place)
    except (Stopped, KeyboardInterrupt):
        result = "interrupted"
    finally:
        left = _removed(laptop, up[1])
    return result if left == 0 else "resources remain"


def _the_line(laptop: Laptop, up: Sequence[str], place: str) -> str:
    """Run the commands until one fails; return the result."""
    with tempfile.TemporaryDirectory(prefix="cloudrec-live-") as folder:
        raw, prepared = f"{folder}/raw", f"{folder}/prepared"
        more = shlex.split(os.environ.get("TRAIN_FLAGS", ""))
        where = ("--cluster", NAME)
        run = f"live-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        train = ("train", *where, "--nodes", str(NODES), "--name", run, "--yes", "--detach")
        line: tuple[tuple[str, ...], ...] = (
            ("data", "synth", raw, "--rows", str(ROWS[place]), "--seed", "1"),
            ("data", "prepare", raw, prepared),
            (*up, "--yes"),
            ("data", "push", prepared, *where),
            (*train, "--", *TRAINER, *more),
            ("logs", run, "--follow"),
        )
        for words in line:
            code, _ = laptop.run(*words)
            if code:
                return f"`cloudrec {' '.join(words[:2])}` ended with {code}"
    shown = laptop.ask("status", run)
    state = shown["runs"][0]["state"] if shown else "unknown"
    return "succeeded" if state == "SUCCEEDED" else f"the run is {state}"


def _removed(laptop: Laptop, provider: str) -> int:
    """Remove the cluster, and search for what is left; return the number of resources, or -1 if unknown."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("\nremoving the cluster; Ctrl-C does not stop this", flush=True)
    for attempt in range(1, _REMOVALS + 1):
        code, _ = laptop.run("down", provider, "--cluster", NAME, "--yes", protected=True)
        if code == 0:
            break
        print(f"`down` ended with {code}, attempt {attempt} of {_REMOVALS}", flush=True)
    else:
        print(f"run this until it succeeds: cloudrec down {provider} --cluster {NAME} --yes", flush=True)
    found = laptop.ask("leaks", provider)
    if found is None:
        return -1
    left = [each for each in found["resources"] if each["cluster"] == NAME]
    print(f"{len(left)} resources are left")
    return len(left)


def price(document: Mapping[str, Any]) -> str:
    """Return what a plan or a cluster costs an hour, as the command line writes it."""
    if document["hourly_usd"] is not None:
        return f"${document['hourly_usd']:.2f}/h"
    return f"${document['known_hourly_usd']:.2f}/h + unknown: {', '.join(document['unknown_prices'])}"


def most(plan: Mapping[str, Any], report: Report) -> str:
    """Return the most that the cluster can cost until the cloud ends it."""
    budget, ttl = report.document["budget_usd"], report.document["ttl"]
    dearest = plan["at_most"]["hourly_usd"]
    if dearest is None:
        return f"a budget of ${budget:g} or {ttl}, whichever ends first; not every price is known"
    usd = min(budget, dearest * seconds_of(ttl) / 3600)
    return f"at most ${usd:.2f} (a budget of ${budget:g} or {ttl}, whichever ends first)"


def _end(process: subprocess.Popen[str]) -> None:
    """End a command, gracefully if it does that in time."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _confirmed() -> bool:
    """Return whether the user agrees to the plan."""
    given = os.environ.get("CONFIRM", "")
    try:
        return (given or input(f"Type {NAME} to continue: ")).strip() == NAME
    except EOFError:  # there is no terminal
        return False


def _stop(*_: object) -> NoReturn:
    raise Stopped


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


if __name__ == "__main__":
    sys.exit(main())
