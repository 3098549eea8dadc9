"""References of a run's variables to Kubernetes Secrets. cloudrec writes no value of a Secret anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError, SpecError
from cloudrec.kubernetes.client.errors import DeniedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

DEFAULT = "cloudrec-secrets"  # the Secret of a reference that names a key alone
# A Secret's name is a DNS subdomain; a key is of these characters (Kubernetes API, Secret.data).
_SECRET = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_LONGEST = 253


def references(secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return the variables as references (`valueFrom`); SpecError for a name that Kubernetes refuses."""
    return {name: {"secretKeyRef": _reference(name, source)} for name, source in secrets.items()}


def _reference(variable: str, source: str) -> dict[str, str]:
    secret, slash, key = source.rpartition("/")
    name = secret if slash else DEFAULT
    for text, pattern in ((name, _SECRET), (key, _KEY)):
        if len(text) > _LONGEST or not pattern.fullmatch(text):
            raise SpecError(
                f"--secret {variable}={source} refers to {text!r}, which Kubernetes refuses as a name",
                remedy=f"name a Secret and its key: --secret {variable}=wandb/api-key",
            )
    return {"name": name, "key": key}


def check_secrets(kube: Kube, target: ClusterTarget, secrets: Mapping[str, str]) -> None:
    """Raise PreflightError if a Secret or its key does not exist: the pods would wait for it without end.

    Without the right to read Secrets nothing is checked; the pods' state then names what is missing.
    """
    for variable, reference in references(secrets).items():
        name, key = (reference["secretKeyRef"][each] for each in ("name", "key"))
        try:
            found = kube.get("Secret", name, namespace=target.namespace)
        except DeniedError:
            return
        keys = sorted({**((found or {}).get("data") or {}), **((found or {}).get("stringData") or {})})
        if key not in keys:
            lacks = f"no key {key!r}; it has: {', '.join(keys) or 'none'}" if found else "no such Secret"
            raise PreflightError(
                f"--secret {variable} refers to the Secret {name!r} of namespace {target.namespace!r}: "
                f"{lacks}",
                remedy=f"kubectl create secret generic {name} --namespace {target.namespace} "
                f"--from-env-file=FILE, where FILE has the line {key}=VALUE",
            )
