"""A home with runs, and the page of `cloudrec ui` over it in another process."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec

BEGAN = 1_790_000_000.0


def a_run(runs: Path, name: str, *, steps: int = 40, end: str = "succeeded", **spec: Any) -> RunFolder:
    """Write a run as its launcher and its trainer would leave it."""
    run = create_run(runs, RunSpec(name=name, nproc_per_node=2, **spec))
    with run.ledger.path.open("w") as file:
        events: list[tuple[str, dict[str, Any]]] = [("submitted", {}), ("started", {"pid": 1})]
        events += [("rank_started", {"attempt": 0, "rank": rank, "pid": 1}) for rank in (0, 1)]
        events += [(end, {"cause": "asked to" if end != "succeeded" else None, "checkpoint": steps})]
        for second, (event, details) in enumerate(events):
            at = BEGAN + (60 if event == end else second)
            file.write(json.dumps({"time": at, "event": event, "launch": 1, **details}) + "\n")
    parts = {"productive_s": 40.0, "restart_s": 8.0, "checkpoint_s": 2.0, "lost_s": 0.0}
    with run.metrics_file.open("w") as file:
        file.write(json.dumps({"kind": "start", "step": 0, "time": BEGAN, "total_steps": steps}) + "\n")
        for step in range(1, steps + 1):
            record = {"kind": "train", "step": step, "loss": 0.7 / step, "samples": step * 10}
            record |= {"time": BEGAN + step, "samples_per_s": 1e4, "step_s": 0.02, "forward_s": 0.01}
            file.write(json.dumps({**record, "goodput": 0.8, "goodput_parts": parts}) + "\n")
        file.write(json.dumps({"kind": "eval", "step": steps, "auc": 0.75, "time": BEGAN + steps}) + "\n")
    run.rank_log(0).write_text("".join(f"step {step} of {steps}\n" for step in range(1, steps + 1)))
    run.rank_log(1).write_text("<script>alert('log')</script> and <b>bold</b>\n\x1b[31mred\x1b[0m\n")
    return run


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    text: str


class LivePage:
    """The server, and a browser's cookie."""

    def __init__(self, link: str, process: subprocess.Popen[str]) -> None:
        self.link = link
        self.process = process
        self.address = urllib.parse.urlsplit(link)
        self.host = f"127.0.0.1:{self.address.port}"
        self.base = f"http://{self.host}"
        self.cookie = self.get(f"/?{self.address.query}", cookie=None).headers["set-cookie"].partition(";")[0]

    def get(self, path: str, *, method: str = "GET", body: str = "", **headers: str | None) -> Answer:
        """Ask with the cookie, unless headers (with _ for -) say otherwise; None leaves one out."""
        sent = {"host": self.host, "cookie": getattr(self, "cookie", None), **headers}
        if body:
            sent |= {"content-type": "application/x-www-form-urlencoded"}
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=30)
        with contextlib.closing(connection):
            given = {name.replace("_", "-"): value for name, value in sent.items() if value is not None}
            connection.request(method, path, body=body or None, headers=given)
            answer = connection.getresponse()
            text = answer.read().decode()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)

    def events(self, path: str, *, until: str, seconds: float = 20.0) -> str:
        """Read a stream until it has a text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"host": self.host, "cookie": self.cookie})
            answer, text, end = connection.getresponse(), "", time.monotonic() + seconds
            while until not in text:
                assert time.monotonic() < end, text
                line = answer.readline().decode()
                assert line, text
                text += line
            return text


@contextlib.contextmanager
def live_page(home: Path, *options: str) -> Iterator[LivePage]:
    """Start `cloudrec ui` over a home, and end it as Ctrl-C does."""
    environment = {**os.environ, "CLOUDREC_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-P", "-m", "cloudrec", "ui", "--no-browser", "--port", "0", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield LivePage(process.stdout.readline().strip(), process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(15) == 0
        finally:
            process.kill()
            process.communicate()
