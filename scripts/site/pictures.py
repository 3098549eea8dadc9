"""The pictures of the documentation as SVG, each from a few rows of boxes and arrows.

Colours follow the reader's light or dark mode. Text is text, so that it can be searched and read aloud.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2328}.s{font-size:12px;fill:#57606a}"
    ".b{fill:#f6f8fa;stroke:#57606a}.m{fill:#ddf4ff;stroke:#0969da}.a{stroke:#57606a;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.b{fill:#21262d;stroke:#9198a1}"
    ".m{fill:#12324f;stroke:#4493f8}.a{stroke:#9198a1}}"
)
_LINE = 18  # pixels from a line of text to the next


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box: its title, and lines below it.

    Attributes:
        at: the left upper corner.
        size: width and height.
        title: the first line.
        lines: smaller lines below it.
        is_main: whether it has a colour.
    """

    at: tuple[int, int]
    size: tuple[int, int]
    title: str
    lines: Sequence[str] = ()
    is_main: bool = False

    def draw(self) -> Iterator[str]:
        """Yield the box and its text."""
        (x, y), (width, height) = self.at, self.size
        kind = "m" if self.is_main else "b"
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
        top = y + (height - _LINE * len(self.lines)) // 2 + 5
        yield f'<text x="{x + width // 2}" y="{top}" text-anchor="middle">{escape(self.title)}</text>'
        for number, line in enumerate(self.lines, 1):
            where = f'x="{x + width // 2}" y="{top + number * _LINE}" text-anchor="middle"'
            yield f'<text class="s" {where}>{escape(line)}</text>'


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """An arrow along some points, with a word beside its middle."""

    points: Sequence[tuple[int, int]]
    word: str = ""

    def draw(self) -> Iterator[str]:
        """Yield the line and its word."""
        path = " ".join(f"{x},{y}" for x, y in self.points)
        yield f'<polyline class="a" points="{path}" marker-end="url(#end)"/>'
        if self.word:
            (x1, y1), (x2, _) = self.points[-2:]
            middle = f'x="{(x1 + x2) // 2}" y="{y1 - 8}" text-anchor="middle"'
            yield f'<text class="s" {middle}>{escape(self.word)}</text>'


def pictures() -> Mapping[str, str]:
    """Return each picture by its name in docs/."""
    return {"pictures/flow.svg": _flow(), "pictures/parts.svg": _parts(), "pictures/cluster.svg": _cluster()}


def _svg(title: str, width: int, height: int, shapes: Sequence[Box | Arrow]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    tip = (
        '<defs><marker id="end" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
        '<path class="a" d="M0,0 L8,4 L0,8"/></marker></defs>'
    )
    drawn = [line for shape in shapes for line in shape.draw()]
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", tip, *drawn, "</svg>\n"]
    )


def _flow() -> str:
    steps = (
        ("up", "a cluster, or this machine"),
        ("data", "prepare, push"),
        ("train", "sharded, checked, metered"),
        ("report", "curves, events, cost"),
        ("down", "nothing is left"),
    )
    width, gap = 172, 18
    boxes = [
        Box(
            at=(10 + each * (width + gap), 40),
            size=(width, 64),
            title=name,
            lines=[line],
            is_main=name == "train",
        )
        for each, (name, line) in enumerate(steps)
    ]
    arrows = [
        Arrow(points=[(left.at[0] + width, 72), (left.at[0] + width + gap - 2, 72)]) for left in boxes[:-1]
    ]
    train = boxes[2].at[0] + width // 2
    again = Arrow(points=[(train + 40, 104), (train + 40, 136), (train - 40, 136), (train - 40, 106)])
    words = Box(at=(train - 150, 142), size=(300, 28), title="stop, lose a node, resume: no sample lost")
    return _svg(
        "up, data, train with stop and resume, report, down", 960, 180, [*boxes, *arrows, again, words]
    )


def _parts() -> str:
    rows = (
        ("your machine", (("command line, Python API", "cli, client"), ("app", "one command's work"))),
        (
            "",
            (("spec, planning", "no I/O"), ("engine", "plan, apply, journal"), ("observe", "status, report")),
        ),
        ("", (("providers", "aws azure gcp kubernetes local"), ("launchers", "local kubernetes ray slurm"))),
        ("the cluster", (("keeper", "nodes, end, budget, queue"), ("agent", "ranks, checks, uploads"))),
        ("each rank", (("trainer", "model, tables, data, checkpoints"),)),
    )
    shapes: list[Box | Arrow] = []
    for number, (_, boxes) in enumerate(rows):
        width = (800 - 20 * (len(boxes) - 1)) // len(boxes)
        for place, (title, line) in enumerate(boxes):
            at = (150 + place * (width + 20), 10 + number * 92)
            shapes.append(Box(at=at, size=(width, 62), title=title, lines=[line], is_main=title == "trainer"))
        if number:
            shapes.append(Arrow(points=[(550, number * 92 - 20), (550, number * 92 + 8)]))
    shapes += [
        Box(at=(5, 10), size=(125, 246), title="your machine"),
        Box(at=(5, 286), size=(125, 62), title="the cluster"),
        Box(at=(5, 378), size=(125, 62), title="each rank"),
    ]
    return _svg("The parts of cloudrec and where they run; imports go downwards", 960, 450, shapes)


def _cluster() -> str:
    shapes: list[Box | Arrow] = [
        Box(
            at=(10, 20),
            size=(170, 150),
            title="your machine",
            lines=["cloudrec", "journal, specs", "may be off"],
        ),
        Box(at=(270, 10), size=(400, 60), title="Kubernetes API", lines=["admits this machine's address"]),
        Box(
            at=(270, 110), size=(190, 90), title="CPU node", lines=["keeper and guard:", "nodes, end, budget"]
        ),
        Box(
            at=(480, 110),
            size=(190, 90),
            title="GPU nodes",
            lines=["an agent and ranks", "fabric between them"],
            is_main=True,
        ),
        Box(
            at=(760, 20),
            size=(190, 80),
            title="the cloud's schedule",
            lines=["ends GPU nodes", "at the cluster's end"],
        ),
        Box(at=(270, 250), size=(400, 60), title="bucket", lines=["data, checkpoints, logs, metrics"]),
        Arrow(points=[(180, 40), (268, 40)], word="applies"),
        Arrow(points=[(365, 110), (365, 72)]),
        Arrow(points=[(575, 70), (575, 108)]),
        Arrow(points=[(460, 155), (478, 155)]),
        Arrow(points=[(575, 200), (575, 248)]),
        Arrow(points=[(95, 170), (95, 280), (268, 280)], word="data push, fetch"),
        Arrow(points=[(855, 100), (855, 155), (672, 155)]),
    ]
    return _svg("A cluster: what runs where, and who reaches what", 960, 330, shapes)
