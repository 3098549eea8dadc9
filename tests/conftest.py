"""How the tests are shared out between processes."""

from __future__ import annotations

import re
import signal
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]
_POOLS = "pools"


class ByFileAndCloud(LoadFileScheduling):
    """A file's tests stay together, for they share what is costly to make; but each cloud's are apart.

    All files whose tests run on the pools of ranks are together, too: each pool is many processes with torch.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _scope_of(nodeid)


def _scope_of(nodeid: str) -> str:
    file, _, name = nodeid.partition("::")
    if file.startswith("tests/trainer/") and _runs_on_pools(file):
        return _POOLS
    if not file.startswith("tests/conformance/"):
        return file
    return f"{file}::{name.rpartition('[')[2].rstrip(']').partition('-')[0]}"


@cache
def _runs_on_pools(file: str) -> bool:
    return bool(re.search(r"\b(ranks: RankPool|worlds: Worlds)\b", (ROOT / file).read_text(encoding="utf-8")))


def pytest_configure() -> None:
    """Let signals end what tests start, though a shell that runs us in the background has them ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the pools, which take minutes on one worker: at the end the others would wait for it."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _scope_of(item.nodeid) != _POOLS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: WorkerController) -> ByFileAndCloud | None:
    return ByFileAndCloud(config, log) if config.getoption("dist") == "loadfile" else None
