"""Nodes that join any API server: pods that its scheduler binds to them run here, as real processes.

The kubelet is the stand-in's own. It works on the API server's objects: a `JoinedStore` reads them by watches
and changes them by calls.
"""

from __future__ import annotations

from cloudrec_sandbox.kubernetes.joined.plane import JoinedNodes

__all__ = ["JoinedNodes"]
