"""Latency and throughput of `cloudrec serve` beside a plain torch server, both as processes on this machine.

    python -m benchmarks.serving [--rounds 5] [--seconds 2]

The reference is what a team writes by hand: a Starlette application that gets ids which are encoded already,
looks them up with nn.EmbeddingBag and runs the same layers with the same weights. cloudrec gets the raw rows,
so it also encodes them. Both answer over HTTP on loopback to clients that keep their connections; the servers
take turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PATIENCE_S = 60.0
RESULTS = Path(__file__).parent / "results"
SHAPES = ((1, 1), (32, 1), (1, 8), (32, 8))  # rows a request, clients
ROWS = 60_000
DENSE, SPARSE, VALUES, DIM = 13, 26, 20_000, 16
BOTTOM, TOP = (512, 256, DIM), (512, 256, 1)
PLAIN = """
import asyncio, json, sys
import numpy as np, torch, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
package = sys.argv[1]
torch.set_num_threads(1)
config = json.load(open(f"{package}/config.json"))
names = list(config["model"]["num_embeddings"])
load = lambda path: torch.from_numpy(np.load(f"{package}/{path}"))
bags = [torch.nn.EmbeddingBag.from_pretrained(load(f"tables/{name}.npy"), mode="sum") for name in names]
def mlp(part, count, last):
    layers = []
    for each in range(count):
        weight = load(f"dense/{part}.layers.{each}.weight.npy")
        layer = torch.nn.Linear(*weight.shape[::-1])
        layer.weight.data, layer.bias.data = weight, load(f"dense/{part}.layers.{each}.bias.npy")
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers if last else layers[:-1])
bottom, top = mlp("bottom", BOTTOM, True), mlp("top", TOP, False)
rows, columns = torch.triu_indices(len(names) + 1, len(names) + 1, offset=1)
@torch.no_grad()
def scores(dense, ids):
    below = bottom(torch.tensor(dense, dtype=torch.float32))
    ids = torch.tensor(ids)
    stacked = torch.stack([below, *(bag(ids[:, place, None]) for place, bag in enumerate(bags))], dim=1)
    pairs = torch.bmm(stacked, stacked.transpose(1, 2))[:, rows, columns]
    return torch.sigmoid(top(torch.cat([below, pairs], dim=1)).view(-1)).tolist()
async def score(request):
    body = await request.json()
    return JSONResponse({"scores": scores(body["dense"], body["ids"])})
app = Starlette(routes=[Route("/score", score, methods=["POST"])])
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
async def main():
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(f"at http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
    await task
asyncio.run(main())
"""


class Measured(NamedTuple):
    """What the clients saw in one round."""

    p50: float  # ms
    p95: float
    p99: float
    rows: float  # a second


def make_model(folder: Path) -> Path:
    """Prepare made-up rows, train for a moment and export; return the export."""
    random = np.random.default_rng(1)
    table: dict[str, Any] = {"label": random.integers(0, 2, ROWS)}
    for place in range(DENSE):
        table[f"n{place}"] = random.lognormal(size=ROWS)
    for place in range(SPARSE):
        table[f"c{place}"] = [f"{each:x}" for each in random.zipf(1.3, ROWS) % VALUES]
    pq.write_table(pa.table(table), folder / "rows.parquet")
    features = {
        "label": "label",
        "dense": [{"name": f"n{place}", "transform": "log1p"} for place in range(DENSE)],
        "sparse": [{"name": f"c{place}", "min_frequency": 1} for place in range(SPARSE)],
    }
    (folder / "features.yaml").write_text(json.dumps(features), encoding="utf-8")
    spell = ",".join
    run = {
        "dataset_path": "data",
        "output_dir": "run",
        "embedding_dim": DIM,
        "dense_arch_layer_sizes": spell(map(str, BOTTOM)),
        "over_arch_layer_sizes": spell(map(str, TOP)),
        "batch_size": 1024,
        "num_epochs": 1,
    }
    python = [sys.executable, "-P", "-m"]
    for command in (
        ["cloudrec", "data", "prepare", "rows.parquet", "data", "--features", "features.yaml"],
        ["trainer", *(f"--{name}={value}" for name, value in run.items())],
        ["trainer.export", "--checkpoint", "run/checkpoints", "--out", "model"],
    ):
        subprocess.run([*python, *command], cwd=folder, check=True, capture_output=True)
    return folder / "model"


@contextmanager
def serving(name: str, package: Path) -> Iterator[int]:
    """Run a server; yield its port."""
    cloudrec = ["-P", "-m", "cloudrec", "serve", str(package), "--port", "0"]
    plain = [
        "-P",
        "-c",
        PLAIN.replace("BOTTOM", str(len(BOTTOM))).replace("TOP", str(len(TOP))),
        str(package),
    ]
    command = [sys.executable, *(cloudrec if name == "cloudrec" else plain)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            for line in process.stdout:
                if (at := line.find("at http://127.0.0.1:")) >= 0:
                    yield int(line[at:].split()[1].rpartition(":")[2])
                    return
            raise RuntimeError(f"the server {name} ended with {process.wait()}")
        finally:
            process.terminate()


def bodies(name: str, package: Path, rows: int) -> list[bytes]:
    """Return different requests."""
    random = np.random.default_rng(2)
    words = {}
    if name == "plain":
        for place in range(SPARSE):
            path = package / "vocabulary" / f"c{place}.jsonl"
            values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            words[place] = {value: number + 2 for number, value in enumerate(values)}
    made = []
    for _ in range(64):
        numbers = random.lognormal(size=(rows, DENSE))
        values = [[f"{each:x}" for each in row] for row in random.zipf(1.3, (rows, SPARSE)) % VALUES]
        if name == "plain":
            ids = [[words[place].get(value, 1) for place, value in enumerate(row)] for row in values]
            made.append({"dense": np.log1p(numbers).tolist(), "ids": ids})
            continue
        made.append(
            {
                "rows": [
                    {f"n{place}": value for place, value in enumerate(row)}
                    | {f"c{place}": value for place, value in enumerate(texts)}
                    for row, texts in zip(numbers.tolist(), values, strict=True)
                ]
            }
        )
    return [json.dumps(each).encode() for each in made]


def measure(
    port: int, path: str, requests: Sequence[bytes], *, rows: int, clients: int, seconds: float
) -> Measured:
    """Send requests for some seconds."""
    found: list[list[float]] = [[] for _ in range(clients)]
    begin = threading.Barrier(clients + 1, timeout=_PATIENCE_S)  # a client that fails lets none wait

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
        ask(connection, path, requests[number])
        begin.wait()
        end = time.perf_counter() + seconds
        place = number
        while (started := time.perf_counter()) < end:
            place = (place + 1) % len(requests)
            ask(connection, path, requests[place])
            found[number].append(time.perf_counter() - started)
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for each in threads:
        each.start()
    begin.wait()
    started = time.perf_counter()
    for each in threads:
        each.join()
    took = time.perf_counter() - started
    if not all(found):
        raise RuntimeError(f"a client of port {port} got no answer")
    times = np.array([each for part in found for each in part]) * 1000
    p50, p95, p99 = (float(each) for each in np.percentile(times, (50, 95, 99)))
    return Measured(p50, p95, p99, len(times) * rows / took)


def ask(connection: http.client.HTTPConnection, path: str, body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the scores of a request."""
    connection.request("POST", path, body)
    response = connection.getresponse()
    data = json.loads(response.read())
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {data}")
    return data["scores"]


def check_equal(ports: dict[str, int], package: Path) -> float:
    """Return the largest difference of the two servers' scores."""
    scores = []
    for name, port in ports.items():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
        path = PATHS[name]
        scores.append([ask(connection, path, each) for each in bodies(name, package, 32)[:8]])
        connection.close()
    return float(np.abs(np.array(scores[0]) - np.array(scores[1])).max())


PATHS = {"plain": "/score", "cloudrec": "/v1/score"}


def main() -> int:
    """Print the table, and write it; return 1 if the servers' scores differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    found: dict[tuple[int, int, str], list[Measured]] = {}
    with tempfile.TemporaryDirectory() as made:
        package = make_model(Path(made))
        with serving("plain", package) as plain, serving("cloudrec", package) as cloudrec:
            ports = {"plain": plain, "cloudrec": cloudrec}
            difference = check_equal(ports, package)
            requests = {(name, rows): bodies(name, package, rows) for name in ports for rows in (1, 32)}
            for _ in range(given.rounds):
                for rows, clients in SHAPES:
                    for name, port in ports.items():
                        one = measure(
                            port,
                            PATHS[name],
                            requests[name, rows],
                            rows=rows,
                            clients=clients,
                            seconds=given.seconds,
                        )
                        found.setdefault((rows, clients, name), []).append(one)
    text = report(found, given.rounds, given.seconds, difference)
    print(text)
    (RESULTS / f"serving-{datetime.now(UTC):%Y-%m-%d}.md").write_text(text, encoding="utf-8")
    return int(difference > 1e-6)


def report(
    found: dict[tuple[int, int, str], list[Measured]], rounds: int, seconds: float, difference: float
) -> str:
    """Return the table."""
    machine = f"{os.cpu_count()} processors ({platform.machine()}), Python {platform.python_version()}"
    lines = [
        f"# `cloudrec serve` beside a plain torch server, {datetime.now(UTC):%Y-%m-%d}",
        "",
        f"{machine}; the servers and the clients share them.",
        f"A DLRM with {SPARSE} tables of width {DIM} and {DENSE} numbers, layers {BOTTOM} and {TOP}.",
        f"Medians of {rounds} rounds of {seconds:g} s, and in brackets the least and the most of the rounds;",
        "`python -m benchmarks.serving`. The plain server gets encoded ids, cloudrec raw rows.",
        f"The scores differ by at most {difference:.1e}.",
        f"The load average was {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| rows a request | clients | server | p50, ms | p95, ms | p99, ms | rows/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for (rows, clients, name), each in found.items():
        cells = [
            f"{statistics.median(part):.1f} ({min(part):.1f} to {max(part):.1f})"
            for part in ([getattr(one, field) for one in each] for field in ("p50", "p95", "p99"))
        ]
        speed = statistics.median(one.rows for one in each)
        lines.append(f"| {rows} | {clients} | {name} | {' | '.join(cells)} | {speed:,.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
