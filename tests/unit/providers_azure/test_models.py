"""The SDK's models in concurrent threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Sixteen threads deserialize a response at the same time, as the first in their process.
_READERS = """
import sys, threading
from cloudrec.providers.azure.api.models import load_models

models = load_models("azure.mgmt.storage.models")
unready = [name for name, model in vars(models).items()
           if isinstance(model, type) and hasattr(model, "_calculated")
           and "_attr_to_rest_field" not in vars(model)]
assert not unready, unready
answer = {"properties": {"networkAcls": {"defaultAction": "Deny", "virtualNetworkRules": [{"id": "subnet"}]}}}
together, read = threading.Barrier(16), []

def reader():
    together.wait()
    row = models.StorageAccount(answer)
    read.append([rule.virtual_network_resource_id for rule in row.network_rule_set.virtual_network_rules])

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=reader) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert read == [["subnet"]] * 16, read
"""


def test_responses_read_by_concurrent_threads_are_complete() -> None:
    pytest.importorskip("azure.mgmt.storage")
    done = subprocess.run([sys.executable, "-c", _READERS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
