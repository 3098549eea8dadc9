"""The command that serves an exported model."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from cloudrec.errors import MissingExtraError, UsageError

_SERVER = "cloudrec_server"
_NEEDED = {  # by extra
    "serve": ("starlette", "uvicorn", "httptools", "prometheus_client", "pyarrow", "polars", "scipy", "isal"),
    "trainer-cpu": ("torch", "torchrec", "fbgemm_gpu"),
}


@click.command()
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Threads that encode and score; each works on a batch of requests.",
)
@click.option(
    "--max-batch-ms",
    type=click.FloatRange(0, 1000),
    default=0.0,
    show_default=True,
    help="Milliseconds that a batch waits for more requests, after a thread is free.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1, 1_000_000),
    default=4096,
    show_default=True,
    help="The most rows of a request.",
)
@click.option(
    "--max-body-mb",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="The longest body of a request, in MiB.",
)
@click.option(
    "--poll-seconds",
    type=click.FloatRange(0.1, 86_400),
    default=5.0,
    show_default=True,
    help="Seconds between two looks for a newer version.",
)
def serve(
    package: Path,
    *,
    host: str,
    port: int,
    threads: int,
    max_batch_ms: float,
    max_rows: int,
    max_body_mb: int,
    poll_seconds: float,
) -> None:
    """Score raw rows with an exported model, over HTTP on this machine.

    \b
    python -m trainer.export --checkpoint RUN/checkpoints --out models/day-1
    cloudrec serve models/day-1            this one
    cloudrec serve models                  always the newest in the folder
    cloudrec serve live                    versions of `python -m trainer.publish`
    curl localhost:8080/v1/model           the columns of a row
    curl localhost:8080/v1/score -d '{"rows": [{"city": "Rome", "price": 3}]}'

    Rows are encoded as `cloudrec data prepare` encoded the training data, so the scores are those of
    `python -m trainer.predict --raw`. A newer version takes over without a pause. SIGTERM and Ctrl-C end the
    server after the requests that run. It has no encryption and no passwords: let nothing but this machine,
    or a proxy that has both, reach it.
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    if not package.is_dir():
        raise UsageError(
            f"{package} is no folder of a model",
            remedy="`python -m trainer.export --checkpoint DIR --out FOLDER` writes one",
        )
    for extra, modules in _NEEDED.items():
        for module in modules:
            if find_spec(module) is None:
                raise MissingExtraError(extra, module=module)
    options = {
        "host": host,
        "port": port,
        "threads": threads,
        "max-batch-ms": max_batch_ms,
        "max-rows": max_rows,
        "max-body-mb": max_body_mb,
        "poll-seconds": poll_seconds,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-P", "-m", _SERVER, *words, "--", str(package)]
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted
