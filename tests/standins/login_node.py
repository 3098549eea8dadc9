"""A stand-in for the program `ssh`: it runs the command on this machine, by a shell, as a login node does.

A text put into the folder of faults fails one call: its first word says how, the rest is what ssh prints.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

# refuse: nothing is run. lose: the command is run, but its answer is lost. cut: the command gets half of its
# input, as if the connection ended. hang: neither answers nor ends.
Kind = Literal["refuse", "lose", "cut", "hang"]
HOST = "me@login"
_SSH = """#!/bin/sh
echo "$*" >>'{folder}/calls'
while [ "$1" != -- ]; do shift; done
fault=$(ls '{folder}/faults' | head -n 1)
[ "$fault" ] && mv '{folder}/faults/'"$fault" '{folder}/fault' || exec sh -c "$3"
read -r kind words <'{folder}/fault'
echo "$words" >&2
case $kind in
    lose) sh -c "$3" >/dev/null ;;
    cut) head -c "$(($(wc -c </proc/self/fd/0) / 2))" | sh -c "$3" >/dev/null ;;
    hang) exec sleep 600 ;;
esac
exit 255
"""


@dataclass(frozen=True)
class LoginNode:
    """A login node that is this machine.

    Args:
        folder: the program's own files, among them those of its faults.
    """

    folder: Path

    def uri(self, path: Path) -> str:
        """Name a folder of this machine as one of the login node."""
        return f"ssh://{HOST}{path.as_uri().removeprefix('file://')}"

    def calls(self) -> list[str]:
        """Return the words of every call."""
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def fail(self, kind: Kind, words: str = "kex: Connection reset by peer", *, times: int = 1) -> None:
        """Fail the next calls."""
        for number in range(times):
            (self.folder / "faults" / f"{number:03}").write_text(f"{kind} {words}\n")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoginNode:
    """Put the program on PATH."""
    (folder / "bin").mkdir(parents=True)
    (folder / "faults").mkdir()
    program = folder / "bin" / "ssh"
    program.write_text(_SSH.format(folder=folder))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}/bin{os.pathsep}{os.environ['PATH']}")
    return LoginNode(folder)
