"""What an endurance test counted: kills, faults, inputs. `make soak` writes them into its report."""

from __future__ import annotations

from collections.abc import Callable

Tally = Callable[[str], None]
