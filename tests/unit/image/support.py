"""A machine with one builder of images on its PATH, and a registry."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudrec.home import Home
from cloudrec.image.records import BuiltImage

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "tests" / "standins" / "docker.py"


@dataclass(frozen=True)
class Machine:
    """The paths and the registry of a test."""

    home: Home
    notes: Path
    path: Path

    def calls(self) -> list[list[str]]:
        """The arguments of all calls of docker."""
        return [json.loads(line) for line in (self.notes / "calls.jsonl").read_text().splitlines()]

    def call(self, word: str) -> list[str]:
        """The one call that contains a word."""
        (found,) = [call for call in self.calls() if word in call]
        return found


def make_machine(folder: Path) -> Machine:
    """A machine with a fake docker and nothing else on its PATH."""
    machine = Machine(Home(root=folder / "home"), folder / "notes", folder / "bin")
    machine.notes.mkdir()
    machine.path.mkdir()
    program = machine.path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {DOCKER} "$@"\n')
    program.chmod(0o755)
    return machine


def built(**more: Any) -> BuiltImage:
    """An image in docker."""
    values = {
        "name": "cloudrec:1.0-plain",
        "fabric": "plain",
        "device": "cuda",
        "version": "1.0",
        "builder": "docker",
        "built": "2026-11-21T10:11:12+00:00",
    }
    return BuiltImage(**{**values, **more})
