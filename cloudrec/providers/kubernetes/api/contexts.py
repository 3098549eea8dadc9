"""Contexts of the user's kubeconfig, which cloudrec only reads; the adopted one becomes a private file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError
from cloudrec.safe_yaml import KUBECONFIG_BYTES, limited_text, safe_yaml
from cloudrec.spec.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LISTS = ("clusters", "users", "contexts")
_FILES = {  # keys that name files, relative to the kubeconfig that names them
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_MANY = 8  # contexts that a message names


def paths(named: str | None, environment: Mapping[str, str]) -> Sequence[Path]:
    """Return the kubeconfigs to read: the named one, those in KUBECONFIG, or ~/.kube/config."""
    home = Path(environment.get("HOME") or Path.home())
    if named:
        return [_expanded(named, home)]
    listed = [part for part in environment.get("KUBECONFIG", "").split(":") if part]
    return [_expanded(part, home) for part in listed] or [home / ".kube" / "config"]


def read(files: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return context name -> kubeconfig with that context only, from all files.

    As in kubectl, the first entry of a name counts, and relative paths are relative to the file that names
    them.

    Raises:
        PreflightError: a file is unreadable or is not a kubeconfig.
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
    """Return the context that kubectl would use; empty if none is set."""
    for file in files:
        if found := _document(file).get("current-context"):
            return str(found)
    return ""


def choose(contexts: Mapping[str, Any], wanted: str | None, files: Sequence[Path]) -> str:
    """Return the wanted context, or the only one if none is wanted.

    Raises:
        PreflightError: there is no context, none of that name, or several and none is wanted.
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
        text = limited_text(file, KUBECONFIG_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PreflightError(f"cannot read the kubeconfig {file}: {why}", remedy="name another") from error
    where = f"the kubeconfig {file}"
    read = safe_yaml(text, where=where, error=PreflightError, remedy="name another", most=KUBECONFIG_BYTES)
    document: Any = read.value or {}
    lists = [document.get(name) or [] for name in _LISTS] if isinstance(document, dict) else [None]
    if not all(isinstance(each, list) and all(_is_entry(entry) for entry in each) for each in lists):
        raise PreflightError(f"{file} is no kubeconfig", remedy="name another")
    found: Mapping[str, Any] = document
    return found


def _is_entry(entry: object) -> bool:
    """Return whether a part of a kubeconfig has a name, and values of the types that are used here."""
    if not isinstance(entry, dict) or "name" not in entry:
        return False
    inner = [entry[part] for part in (*_FILES, "context") if entry.get(part) is not None]
    if not all(isinstance(each, dict) for each in inner):
        return False
    files = [each.get(key) for each in inner for keys in _FILES.values() for key in keys]
    commands = [each.get("exec") for each in inner]
    return all(isinstance(file, str | None) for file in files) and all(
        command is None or (isinstance(command, dict) and isinstance(command.get("command", ""), str))
        for command in commands
    )


def _absolute(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a kubeconfig entry with absolute paths, so that it is valid in another folder's file."""
    made = dict(entry)
    for part, keys in _FILES.items():
        if isinstance(made.get(part), dict):
            inner = dict(made[part])
            inner |= {key: str((folder / inner[key]).absolute()) for key in keys if inner.get(key)}
            command = (inner.get("exec") or {}).get("command", "")
            # A command without a slash is looked up on PATH, and must stay a plain name.
            if "/" in command:
                inner["exec"] = {**inner["exec"], "command": str((folder / command).absolute())}
            made[part] = inner
    return made


def _alone(name: str, context: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a kubeconfig with one context only; None if its cluster has no entry."""
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
