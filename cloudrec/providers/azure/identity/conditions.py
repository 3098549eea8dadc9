"""What limits the keeper's role on the container: conditions of role assignments, in Azure's language.

Sources: azure-docs, conditions-format.md and storage-auth-abac-attributes.md. A call is allowed if the
condition is true for its action, its sub-operation and its attributes.
"""

from __future__ import annotations

from cloudrec_contract.layout import run_uri, turns_uri

CONDITIONS = "2.0"  # the version of the language

_CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
_NAME = f"@Resource[{_CONTAINERS}:name]"
_PATH, _PREFIX = f"@Resource[{_CONTAINERS}/blobs:path]", f"@Request[{_CONTAINERS}/blobs:prefix]"
_LIST = "SubOperationMatches{'Blob.List'}"
_NO_CONTAINER = "-"  # no container has this name


def turns_condition(prefix: str) -> str:
    """Return the condition that lets a keeper take turns, and see that the pods of a run write.

    It may read and write blobs below `turns`, and list the names there and those of pods' files. It deletes
    nothing, and reads no run.

    Args:
        prefix: the part of the container that runs use; empty for the whole container.
    """
    # In a pattern a star is any text. No text can have a quotation mark, so any character may be there.
    within = prefix.replace("*", "\\*").replace("'", "?")
    turns = turns_uri(within, "*").lstrip("/")
    pods = f"{run_uri(within or '/', '*')}/pods/*".lstrip("/")
    # The form of Microsoft's examples: a clause names the actions that it limits, and what it requires.
    clauses = {
        _none_of(f"{_action('read')} AND NOT {_LIST}", _action("write"), _action("add/action")): (
            f"{_PATH} StringLike '{turns}'"
        ),
        _none_of(f"{_action('read')} AND {_LIST}"): (
            f"{_PREFIX} StringLike '{turns}' OR {_PREFIX} StringLike '{pods}'"
        ),
        _none_of(_action("delete"), _action("move/action")): f"{_NAME} StringEquals '{_NO_CONTAINER}'",
    }
    return " AND ".join(f"(({others}) OR ({required}))" for others, required in clauses.items())


def _none_of(*actions: str) -> str:
    return " AND ".join(f"!({action})" for action in actions)


def _action(name: str) -> str:
    return f"ActionMatches{{'{_CONTAINERS}/blobs/{name}'}}"
