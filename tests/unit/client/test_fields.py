"""The keyword arguments of the Python API have the names of the spec's keys."""

from __future__ import annotations

import subprocess
import sys

from cloudrec.client.fields import ClusterFields, TrainFields
from cloudrec.spec.models import ClusterSpec, TrainSpec

_OWN_PARAMETERS = {"name", "provider"}
_INTERNAL = {"block", "expires", "end_limit", "storage"}  # `up` writes these into the record of a cluster


def test_up_takes_every_key_of_the_section_cluster() -> None:
    assert set(ClusterFields.__annotations__) == set(ClusterSpec.model_fields) - _OWN_PARAMETERS - _INTERNAL


def test_train_takes_every_key_of_the_section_train() -> None:
    own = {"name", "script", "arguments"}
    assert set(TrainFields.__annotations__) == set(TrainSpec.model_fields) - own


def test_a_script_that_only_logs_imports_nothing_of_the_client() -> None:
    code = "import sys, cloudrec; cloudrec.log; print(*[m for m in sys.modules if m.startswith('cloudrec.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
