"""Contexts of the user's kubeconfig, which is only ever read: one of them becomes a private file of ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec.errors import PreflightError
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LISTS = ("clusters", "users", "contexts")
_FILES = {  # keys that name files, relative to the kubeconfig that names them
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_MANY = 8  # contexts that are named where one must be chosen


def paths(named: str | None, environment: Mapping[str, str]) -> Sequence[Path]:
    """Return the kubeconfigs to read: the one named, those of KUBECONFIG, or the usual one."""
    home = Path(environment.get("HOME") or Path.home())
    if named:
        return [_expanded(named, home)]
    listed = [part for part in environment.get("KUBECONFIG", "").split(":") if part]
    return [_expanded(part, home) for part in listed] or [home / ".kube" / "config"]


def read(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the contexts of kubeconfigs, each as a whole kubeconfig of its own; of namesakes the first.

    Raises:
        PreflightError: one cannot be read, or is no kubeconfig.
    """
    entries: dict[str, dict[str, Any]] = {name: {} for name in _LISTS}
    for file in files:
        document = _document(file)
        for listed in _LISTS:
            for entry in document.get(listed) or ():
                entries[listed].setdefault(str(entry["name"]), _absolute(entry, file.parent))
    return {
        name: whole
        for name, context in entries["contexts"].items()
        if (whole := _alone(name, context, entries)) is not None
    }


def current(files: Sequence[Path]) -> str:
    """Return the context that Kubernetes' own tools would take; empty where none is set."""
    for file in files:
        if found := _document(file).get("current-context"):
            return str(found)
    return ""


def choose(contexts: Mapping[str, Any], wanted: str | None, files: Sequence[Path]) -> str:
    """Return the context that is meant: the one named, or the only one there is.

    Raises:
        PreflightError: there is none, none of that name, or several to choose from.
    """
    where = ", ".join(map(str, files))
    if not contexts:
        raise PreflightError(
            f"no context of a cluster is in {where}",
            remedy="name a kubeconfig: KUBECONFIG, or --set cluster.settings.kubeconfig=PATH",
        )
    if wanted is None and len(contexts) > 1:
        names = [*sorted(contexts)[:_MANY], *(["..."] if len(contexts) > _MANY else [])]
        raise PreflightError(
            f"{where} has {len(contexts)} contexts: {', '.join(names)}",
            remedy="say which cluster is meant: --set cluster.settings.context=NAME",
        )
    chosen = wanted if wanted is not None else next(iter(contexts))
    if chosen not in contexts:
        raise PreflightError(
            f"{where} has no context {chosen!r}", remedy=did_you_mean(chosen, sorted(contexts))
        )
    return chosen


def _document(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no YAML"
        raise PreflightError(f"cannot read the kubeconfig {file}: {why}", remedy="name another") from error
    lists = [document.get(name) or [] for name in _LISTS] if isinstance(document, dict) else [None]
    if not all(isinstance(each, list) and all(_is_entry(entry) for entry in each) for each in lists):
        raise PreflightError(f"{file} is no kubeconfig", remedy="name another")
    found: Mapping[str, Any] = document
    return found


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and "name" in entry


def _absolute(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entry with the files that it names as absolute paths, so that it holds anywhere."""
    made = dict(entry)
    for part, keys in _FILES.items():
        if isinstance(made.get(part), dict):
            inner = dict(made[part])
            inner |= {key: str((folder / inner[key]).absolute()) for key in keys if inner.get(key)}
            command = (inner.get("exec") or {}).get("command", "")
            if "/" in command:
                inner["exec"] = {**inner["exec"], "command": str((folder / command).absolute())}
            made[part] = inner
    return made


def _alone(name: str, context: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a kubeconfig of one context; None where what the context names is missing."""
    inner = context.get("context") or {}
    cluster = entries["clusters"].get(str(inner.get("cluster")))
    user = entries["users"].get(str(inner.get("user")))
    if cluster is None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [user] if user else [],
        "contexts": [context],
        "current-context": name,
    }


def _expanded(path: str, home: Path) -> Path:
    return home / path.removeprefix("~/") if path.startswith("~/") else Path(path).absolute()
