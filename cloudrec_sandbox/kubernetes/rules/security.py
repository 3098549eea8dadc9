"""Pod security: what a namespace's label allows for its pods (baseline, restricted)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.rules.defaults import containers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloudrec_sandbox.kubernetes.storage.store import Store

_LABEL = "pod-security.kubernetes.io/enforce"
_WARN = "pod-security.kubernetes.io/warn"
_BASELINE = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
_SECCOMP = ("RuntimeDefault", "Localhost")


def check(store: Store, pod: Mapping[str, Any]) -> None:
    """Refuse with 403 a pod that its namespace's level forbids."""
    namespace = store.table.get("namespaces", ("", pod["metadata"]["namespace"]))
    labels = (namespace.obj["metadata"].get("labels") or {}) if namespace else {}
    level = labels.get(_LABEL, "privileged")
    if level not in ("baseline", "restricted"):
        return
    spec = pod["spec"]
    found = [*_baseline(spec), *(_restricted(spec) if level == "restricted" else ())]
    if found:
        version = labels.get(f"{_LABEL}-version", "latest")
        why = f'violates PodSecurity "{level}:{version}": {", ".join(found)}'
        raise errors.forbidden("pods", "", pod["metadata"]["name"], why)


def warnings(store: Store, namespace: str, spec: Mapping[str, Any]) -> list[str]:
    """Return what the API server warns of, for a pod or the template of a workload.

    The label `warn` of a namespace refuses nothing ("Pod Security Admission", Kubernetes' documentation). The
    text is that of k8s.io/pod-security-admission, `EvaluatePod`.
    """
    entry = store.table.get("namespaces", ("", namespace))
    labels = (entry.obj["metadata"].get("labels") or {}) if entry else {}
    level = labels.get(_WARN, "privileged")
    if level not in ("baseline", "restricted"):
        return []
    found = [*_baseline(spec), *(_restricted(spec) if level == "restricted" else ())]
    version = labels.get(f"{_WARN}-version", "latest")
    return [f'would violate PodSecurity "{level}:{version}": {", ".join(found)}'] if found else []


def _baseline(spec: Mapping[str, Any]) -> Iterator[str]:
    if shared := [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]:
        yield f"host namespaces ({', '.join(f'{name}=true' for name in shared)})"
    if paths := [each["name"] for each in spec.get("volumes") or () if "hostPath" in each]:
        yield f"hostPath volumes (volumes {_listed(paths)})"
    for container in containers(dict(spec)):
        context, name = container.get("securityContext") or {}, container["name"]
        if context.get("privileged"):
            yield f'privileged (container "{name}" must not set securityContext.privileged=true)'
        added = set((context.get("capabilities") or {}).get("add") or ()) - _BASELINE
        if added:
            yield (
                f'non-default capabilities (container "{name}" must not include {_listed(sorted(added))} in '
                "securityContext.capabilities.add)"
            )
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield f'hostPort (container "{name}" uses hostPorts)'


def _restricted(spec: Mapping[str, Any]) -> Iterator[str]:
    whole = spec.get("securityContext") or {}
    kinds = {kind for each in spec.get("volumes") or () for kind in each if kind != "name"}
    if kinds - _VOLUMES - {"hostPath"}:
        yield f"restricted volume types ({', '.join(sorted(kinds - _VOLUMES))})"
    for container in containers(dict(spec)):
        context, name = container.get("securityContext") or {}, container["name"]
        capabilities = context.get("capabilities") or {}
        if context.get("allowPrivilegeEscalation", True):
            yield (
                f'allowPrivilegeEscalation != false (container "{name}" must set '
                "securityContext.allowPrivilegeEscalation=false)"
            )
        if "ALL" not in (capabilities.get("drop") or ()):
            yield (
                f'unrestricted capabilities (container "{name}" must set '
                'securityContext.capabilities.drop=["ALL"])'
            )
        elif set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
            yield f'unrestricted capabilities (container "{name}" may add only NET_BIND_SERVICE)'
        if not context.get("runAsNonRoot", whole.get("runAsNonRoot")):
            yield (
                f'runAsNonRoot != true (pod or container "{name}" must set securityContext.runAsNonRoot=true)'
            )
        if context.get("runAsUser", whole.get("runAsUser")) == 0:
            yield f'runAsUser=0 (container "{name}" must not set runAsUser=0)'
        profile = context.get("seccompProfile") or whole.get("seccompProfile") or {}
        if profile.get("type") not in _SECCOMP:
            yield (
                f'seccompProfile (pod or container "{name}" must set securityContext.seccompProfile.type to '
                '"RuntimeDefault" or "Localhost")'
            )


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
