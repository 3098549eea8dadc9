"""Kubernetes manifests: typed contexts, one for each template, and their rendering.

    Workload + Target + transport profile -> contexts (all decisions) -> templates/k8s/*.yaml.j2 -> objects

The objects are plain mappings, in the order in which they are applied; `text` prints them.
"""

from cloudrec.manifests.guard import Guarding, guard_objects
from cloudrec.manifests.objects import namespace_objects, run_objects
from cloudrec.manifests.probe import probe_name, probe_objects
from cloudrec.manifests.rendering import Context, TemplateError, render, text
from cloudrec.manifests.workload import Workload

__all__ = [
    "Context",
    "Guarding",
    "TemplateError",
    "Workload",
    "guard_objects",
    "namespace_objects",
    "probe_name",
    "probe_objects",
    "render",
    "run_objects",
    "text",
]
