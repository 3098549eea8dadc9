"""Runs bad inputs in this process, through the command line or a reader, and judges what happens.

Each input gets a folder with a home that has two clusters and two runs. An audit hook sees every file that
the process opens for writing, creates, renames or removes, so a file outside the folder is found anywhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from cloudrec.cli import output
from cloudrec.cli.main import run
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from tests.fuzz import readers
from tests.fuzz.inputs import BadInput

LIMIT_S = 2.0
_HANG_S = 20.0
_MANY = 30  # things touched, from which on the whole home is copied again
_BESIDE = ("-journal", "-wal", "-shm")  # files of SQLite beside a database, which no audit hook sees
_JOURNAL_BYTES = 4096  # a page of SQLite; no damaged journal is that large
_CODES = {0, 1, 2, 3, 4, 5, 6, 130}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.move",
}
_OWN = re.compile(r'File "([^"]*(?:cloudrec|trainer)[^"]*)", line (\d+), in (\S+)')
# No SDK waits for the metadata service of a cloud's machine.
_OFFLINE = {
    "USER": "fuzz",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_GCE_CHECK": "true",
    "GCE_METADATA_HOST": "127.0.0.1:1",
    "GCE_METADATA_IP": "127.0.0.1:1",
}
_VARIABLES = {"PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONHASHSEED"}


class HangError(BaseException):
    """The input takes much longer than the limit; no handler of errors may catch it."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What an input did that it must not.

    Attributes:
        kind: traceback, slow, outside or code.
        place: where, for a traceback; else what.
        given: the input.
    """

    kind: str
    place: str
    given: BadInput


class World:
    """A folder for one input after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.home, self.here = self.root / "home", self.root / "here"
        self._template = self.root / "template"
        self._written: list[str] = []
        self._touched: set[str] = set()  # below the root, by the last input
        self._is_new = False
        self._is_watched = False
        self._make_template()
        tempfile.tempdir = str(self.root / "tmp")
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGALRM, _hang)

    def _make_template(self) -> None:
        for folder in ("home", "here", "tmp", "user"):
            (self.root / folder).mkdir(parents=True)
        with self._environment(BadInput(area="", command=())), captured():
            for name in ("good", "odd"):
                if run(["up", "local", "--cluster", name, "--yes"]) != 0:
                    raise RuntimeError("the clusters of the template cannot be created")
        for name in ("good", "odd"):
            made = create_run(self.home / "runs", RunSpec(name=name, cluster="good", provider="local"))
            for event in ("submitted", "started", "succeeded"):
                made.ledger.append(event, launch=1)
            made.rank_log(0).write_text("a line\n")
        shutil.move(self.home, self._template)

    def renew(self) -> None:
        """Make everything again before the next input, so that a batch depends on none before it."""
        self._is_new = False

    def judge(self, given: BadInput) -> list[Fault]:
        """Run an input and return its faults; one that seems slow runs again: the machine may be busy."""
        faults = self._attempt(given)
        if any(fault.kind == "slow" for fault in faults):
            again = self._attempt(given)
            if not any(fault.kind == "slow" for fault in again):
                faults = [fault for fault in faults if fault.kind != "slow"]
        return faults

    def _attempt(self, given: BadInput) -> list[Fault]:
        self._prepare(given)
        self._written.clear()
        with self._environment(given), captured() as streams:
            self._is_watched = True
            signal.setitimer(signal.ITIMER_REAL, _HANG_S)
            begun, problem, code = time.monotonic(), "", 0
            try:
                if given.area == "records":
                    self._read(given)
                else:
                    code = run(list(given.command))
            except HangError:
                problem = "hang"
            except (Exception, SystemExit) as error:  # noqa: BLE001 - this is what the test looks for
                if given.area != "records" or not isinstance(error, readers.EXPECTED):
                    problem = traceback.format_exc()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                took, self._is_watched = time.monotonic() - begun, False
        return list(self._faults(given, problem, code, took, streams[1]))

    def _faults(self, given: BadInput, problem: str, code: int, took: float, errors: str) -> Iterator[Fault]:
        if "a bug in cloudrec" in errors:
            crashes = sorted((self.root).glob("home/crashes/*.log")) or sorted(
                (self.root / "tmp").glob("crash-*.log")
            )
            problem = crashes[-1].read_text(encoding="utf-8") if crashes else errors
        if problem and problem != "hang":
            yield Fault(kind="traceback", place=place_of(problem), given=given)
        if problem == "hang" or took > LIMIT_S:
            yield Fault(kind="slow", place=f"{took:.1f} s", given=given)
        if code not in _CODES:
            yield Fault(kind="code", place=str(code), given=given)
        for path in sorted(set(self._written)):
            yield Fault(kind="outside", place=path, given=given)

    def _read(self, given: BadInput) -> None:
        readers.read(given.command[0], given.files["record"], self.here)

    def _prepare(self, given: BadInput) -> None:
        if given.area == "records":
            shutil.rmtree(self.here, ignore_errors=True)
            self.here.mkdir()
            (self.here / "record").write_bytes(given.files["record"])
            return
        self._restore()
        for name, data in given.files.items():
            if name == "row":
                self._damage_row(data)
                continue
            path = self.root / name
            self._touched.add(str(path))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def _restore(self) -> None:
        """Make the folders as they were; of the home, only what the last input touched."""
        for name in ("here", "tmp", "user"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / name).mkdir()
        inside = sorted(Path(each) for each in self._touched if each.startswith(f"{self.home}/"))
        self._touched.clear()
        if not self._is_new or len(inside) > _MANY:
            shutil.rmtree(self.home, ignore_errors=True)
            shutil.copytree(self._template, self.home)
            self._is_new = True
            return
        for path in inside:
            whole = self._template / path.relative_to(self.home)
            if path.is_dir() and not path.is_symlink() and not whole.is_dir():
                shutil.rmtree(path)
            elif not whole.is_dir():
                path.unlink(missing_ok=True)
            if whole.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(whole, path)
        if self._shape(self.home) != self._shape(self._template):  # something came or went unseen
            shutil.rmtree(self.home, ignore_errors=True)
            shutil.copytree(self._template, self.home)

    @staticmethod
    def _shape(folder: Path) -> dict[str, tuple[int, int]]:
        """Return the modes and, of files, the sizes of everything below a folder."""
        found: dict[str, tuple[int, int]] = {}
        waiting = [str(folder)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    state = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    found[entry.path[len(str(folder)) :]] = (state.st_mode, 0 if is_folder else state.st_size)
                    waiting += [entry.path] * is_folder
        return found

    def _damage_row(self, data: bytes) -> None:
        self._touched.add(str(self.home / "journal.sqlite"))
        if (self.home / "journal.sqlite").stat().st_size < _JOURNAL_BYTES:
            return  # it is damaged as a whole
        row = (data.decode("utf-8", "replace"),)
        # The same input may have put another file in the journal's place.
        with (
            contextlib.suppress(sqlite3.DatabaseError),
            contextlib.closing(sqlite3.connect(self.home / "journal.sqlite")) as connection,
        ):
            connection.execute("update clusters set request = ? where name = 'odd'", row)
            connection.commit()

    @contextlib.contextmanager
    def _environment(self, given: BadInput) -> Iterator[None]:
        before, folder = dict(os.environ), Path.cwd()
        os.environ.clear()
        os.environ.update({name: value for name, value in before.items() if name in _VARIABLES})
        folders = {"CLOUDREC_HOME": self.home, "HOME": self.root / "user", "TMPDIR": self.root / "tmp"}
        os.environ.update({name: str(path) for name, path in folders.items()})
        os.environ.update(_OFFLINE)
        os.environ.update(
            {name: value.encode("utf-8", "replace").decode() for name, value in given.environment.items()}
        )
        output.choose_format("table")
        output._held.clear()
        os.chdir(self.here)
        try:
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)

    def _audit(self, event: str, details: Sequence[Any]) -> None:
        if not self._is_watched:
            return
        if event in {"socket.getaddrinfo", "socket.connect"}:
            _stay_here(event, details)
        if event == "open":
            path, mode, flags = details
            writes = bool(set(mode) & set("wax+")) if isinstance(mode, str) else bool((flags or 0) & _WRITES)
            if writes:
                self._check(path)
        elif event in _CHANGES or event == "sqlite3.connect":
            for path in details[:2] if event in {"os.rename", "os.link"} else details[:1]:
                self._check(path)

    def _check(self, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor, which is open already
        name = os.fsdecode(path)
        if name.startswith(("/dev/", "/proc/self/", "file:")) or "__pycache__" in name or name == ":memory:":
            return
        full = os.path.realpath(name)
        if not full.startswith(f"{self.root}/") or full.startswith(f"{self._template}/"):
            self._written.append(full)
            return
        self._touched.add(full)
        if full.endswith(".sqlite"):
            self._touched |= {f"{full}{end}" for end in _BESIDE}


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """Replace stdout and stderr by files in memory, as strict as a terminal; yield their texts at the end."""
    held = [io.BytesIO(), io.BytesIO()]
    out, err = (
        io.TextIOWrapper(file, encoding="utf-8", errors=errors, write_through=True)
        for file, errors in zip(held, ("strict", "backslashreplace"), strict=True)
    )
    texts = ["", ""]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield texts
    texts[:] = [file.getvalue().decode("utf-8", "replace") for file in held]


def _stay_here(event: str, details: Sequence[Any]) -> None:
    """Refuse a connection to another machine: an input may name any."""
    place = details[1] if event == "socket.connect" else details
    host = place[0] if isinstance(place, tuple) else ""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if event == "socket.connect" and not isinstance(place, tuple):
        return  # a socket of this machine's
    if host not in {None, "", "localhost", "127.0.0.1", "::1"}:
        raise OSError(f"the test reaches no other machine: {host!r}")


def place_of(trace: str) -> str:
    """Return where an error was raised: its last line in our code, and its class."""
    found = _OWN.findall(trace)
    last = trace.strip().splitlines()[-1][:160]
    return f"{'/'.join(Path(found[-1][0]).parts[-3:])}:{found[-1][1]} {last}" if found else last


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise HangError
