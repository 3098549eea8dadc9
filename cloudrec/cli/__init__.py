"""The command line. Commands are imported when they are used, so that `cloudrec --help` stays quick."""

from __future__ import annotations

from cloudrec.cli.main import main

__all__ = ["main"]
