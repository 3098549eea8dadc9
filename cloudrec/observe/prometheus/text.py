"""Writes metrics in Prometheus' text format, version 0.0.4.

Source: prometheus.io/docs/instrumenting/exposition_formats
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LONGEST = 200  # characters of a label's value

Kind = Literal["gauge", "counter"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric, without its values.

    Attributes:
        name: its name; that of a counter ends with _total, and a unit is the last part before it.
        kind: gauge or counter.
        text: what it is, for # HELP.
    """

    name: str
    kind: Kind
    text: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name} is no name of a {self.kind}")


@dataclass
class Exposition:
    """The values of one scrape.

    Attributes:
        labels: labels of every sample.
    """

    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._samples: dict[Metric, dict[tuple[tuple[str, str], ...], float]] = {}

    def add(self, metric: Metric, value: float | None, **labels: str) -> None:
        """Add a sample; an unknown value (None) adds none, and a label that is empty is left out."""
        if value is None:
            return
        named = {name: text for name, text in {**self.labels, **labels}.items() if text}
        if wrong := [name for name in named if not _LABEL.fullmatch(name)]:
            raise ValueError(f"{wrong[0]} is no name of a label")
        self._samples.setdefault(metric, {})[tuple(sorted(named.items()))] = value

    def text(self) -> str:
        """Return the document: the samples of a metric are together, after its HELP and TYPE."""
        return "".join(line + "\n" for line in self._lines())

    def _lines(self) -> Iterable[str]:
        for metric, samples in self._samples.items():
            yield f"# HELP {metric.name} {_escaped(metric.text, quotes=False)}"
            yield f"# TYPE {metric.name} {metric.kind}"
            for labels, value in samples.items():
                named = ",".join(f'{name}="{_escaped(text[:_LONGEST])}"' for name, text in labels)
                yield (
                    f"{metric.name}{{{named}}} {_number(value)}"
                    if named
                    else f"{metric.name} {_number(value)}"
                )


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
