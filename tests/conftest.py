"""How the tests are shared out between processes."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class ByFileAndCloud(LoadFileScheduling):
    """A file's tests stay together, for they share what is costly to make; but each cloud's are apart."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        if not file.startswith("tests/conformance/"):
            return file
        return f"{file}::{name.rpartition('[')[2].rstrip(']').partition('-')[0]}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: WorkerController) -> ByFileAndCloud | None:
    return ByFileAndCloud(config, log) if config.getoption("dist") == "loadfile" else None
