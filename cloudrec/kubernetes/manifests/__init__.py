"""Kubernetes manifests: typed contexts, one for each template, and their rendering.

    Workload + Target + transport profile -> contexts (all decisions) -> templates/k8s/*.yaml.j2 -> objects

The objects are plain mappings, in the order in which they are applied; `text` prints them.
"""

from cloudrec.kubernetes.manifests.guard import Guarding, guard_objects
from cloudrec.kubernetes.manifests.objects import namespace_objects, run_objects
from cloudrec.kubernetes.manifests.probe import probe_name, probe_objects
from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext, TemplateError, render, text
from cloudrec.kubernetes.manifests.workload import Workload

__all__ = [
    "Guarding",
    "TemplateContext",
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
