"""The host memory and the stall of a full checkpoint of a device's tables, beside copying the tables first.

    python -m benchmarks.device_snapshot [--gb N] [--folder DIR] [--write]

There is no GPU: the device is that of the tests, whose tables are in memory of the CPU and count as the
device's. Training changes rows at random while the checkpoint is written. Host memory is what the trainer and
the writer have besides the tables; the device's own buffers are counted apart from it, though they are in the
same memory here. Times are those of the CPU, and say nothing of a GPU's.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch

from benchmarks.machine import describe_machine
from tests.trainer.support_device import DeviceModel, LateDevice
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.saves import SavingOptions

RESULTS = Path(__file__).parent / "results"
ROW_BYTES = 92  # of the model, for each row of its first table
TOUCHED = 20_000  # rows of each kernel a step
STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """A save, and the most memory meanwhile."""

    label: str
    host_bytes: int
    pinned_bytes: int
    device_bytes: int
    stall_s: float
    write_s: float
    steps: int


class HostMemory:
    """Samples the private memory of this process, above that of the beginning, and of its children."""

    def __init__(self, device: LateDevice) -> None:
        self.highest = 0
        self._device = device
        self._start = _private(psutil.Process()) - device.used.now
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def close(self) -> int:
        """The most bytes at one time, without those of the device."""
        self._over.set()
        self._thread.join()
        return self.highest

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.01):
            held = _private(me) - self._device.used.now - self._start
            for child in me.children():
                try:
                    held += _private(child)
                except psutil.Error:  # it has ended
                    continue
            self.highest = max(self.highest, held)


def _private(process: psutil.Process) -> int:
    return int(process.memory_full_info().uss)


def measure(folder: Path, size: int, *, streamed: bool) -> Measured:
    """Save once while training continues."""
    device = LateDevice(eager=1.0)
    model = DeviceModel(device, rows=size // ROW_BYTES)
    if not streamed:
        for tensor in model.tensors.values():
            tensor.share_memory_()  # which a fork does not freeze, as it does not freeze a GPU's memory
    options = SavingOptions(mode="full", in_background=True)
    used = device if streamed else None
    with Checkpointer(str(folder), keep=1, rank=0, world_size=1, options=options, device=used) as writer:
        small = DeviceModel(LateDevice(), rows=1000)
        writer.save(1, small.state, {}, {})  # starts the writer
        shutil.rmtree(folder / "step-1", ignore_errors=True)
        memory = HostMemory(device)
        writer.save(2, model.state, {}, {}, wait=False)
        reports, steps = writer.poll(), 0
        while not reports:
            model.train(TOUCHED)
            steps += 1
            time.sleep(STEP_S)
            reports = writer.poll()
        host = memory.close()
    label = "streamed" if streamed else "copied first"
    report = reports[0]
    return Measured(label, host, device.pinned.peak, device.used.peak, report.seconds, report.write_s, steps)


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=6.0)
    parser.add_argument("--folder", type=Path, help="on the disk to write to [the temporary folder]")
    parser.add_argument("--write", action="store_true", help="keep the table in benchmarks/results")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        (
            "| tables | host memory over the tables MB | of it pinned MB | device memory MB | stall s | "
            "write s | steps |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for streamed in (True, False):
        folder = Path(tempfile.mkdtemp(dir=arguments.folder))
        try:
            found = measure(folder, int(arguments.gb * 1e9), streamed=streamed)
        finally:
            shutil.rmtree(folder)
        lines.append(
            f"| {found.label} | {found.host_bytes / 1e6:.0f} | {found.pinned_bytes / 1e6:.0f} | "
            f"{found.device_bytes / 1e6:.0f} | {found.stall_s:.2f} | {found.write_s:.1f} | {found.steps} |"
        )
    today = datetime.now(UTC).date()
    text = "\n".join(
        [
            f"# A full checkpoint of {arguments.gb:g} GB of a device's tables, {today}",
            "",
            (
                f"{describe_machine()} The device is a stand-in in the CPU's memory, so times are no GPU's. "
                f"{TOUCHED:,} rows of each kernel change at random every {STEP_S * 1e3:.0f} ms or more while "
                "the checkpoint is written; others used the machine too."
            ),
            "",
            *lines,
            "",
        ]
    )
    print(text)
    if arguments.write:
        (RESULTS / f"device-snapshot-{today}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
