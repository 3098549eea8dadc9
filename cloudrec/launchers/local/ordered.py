"""A rendezvous that numbers the nodes by a key instead of their addresses.

torch's c10d rendezvous sorts the nodes by address, and gives ranks in that order. Here an address is a text
that sorts by its key, and is otherwise the address. Other nodes get it pickled, so its class is in a module
that they can import.
"""

from __future__ import annotations

from typing import Any, Self

BACKEND = "c10d-ordered"
KEY = "CLOUDREC_RANK_KEY"  # the variable with this node's key


class OrderedAddress(str):
    """An address that sorts by a key.

    Args:
        address: the address.
        key: the key; addresses of equal keys, and such without one, sort by the address.
    """

    __slots__ = ("key",)
    key: str

    def __new__(cls, address: str, key: str = "") -> Self:
        """Return the address."""
        made = super().__new__(cls, address)
        made.key = key
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override] # str has one argument
        """Return the arguments for the copy that another node unpickles."""
        return str(self), self.key

    def __lt__(self, other: str) -> bool:
        """Return whether it sorts before another address."""
        return _place(self) < _place(other)

    def __gt__(self, other: str) -> bool:
        """Return whether it sorts after another address."""
        return _place(self) > _place(other)

    def __le__(self, other: str) -> bool:
        """Return whether it does not sort after another address."""
        return _place(self) <= _place(other)

    def __ge__(self, other: str) -> bool:
        """Return whether it does not sort before another address."""
        return _place(self) >= _place(other)


class Renamed:
    """A backend of a rendezvous with another name, which must be that of torchrun's flag.

    Args:
        backend: the backend.
    """

    name = BACKEND

    def __init__(self, backend: Any) -> None:  # noqa: ANN401 - torch is seen as Any
        self.get_state = backend.get_state
        self.set_state = backend.set_state


def create(parameters: Any, key: str) -> Any:  # noqa: ANN401 - torch is seen as Any
    """Return c10d's rendezvous of a node with a key."""
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend  # noqa: PLC0415
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler  # noqa: PLC0415

    if parameters.local_addr:
        parameters.local_addr = OrderedAddress(parameters.local_addr, key)
    backend, store = create_backend(parameters)
    return create_handler(store, Renamed(backend), parameters)


def with_backend(arguments: list[str]) -> list[str]:
    """Return torchrun's arguments with this rendezvous instead of c10d's."""
    changed = list(arguments)
    for position, word in enumerate(arguments[:-1]):
        if word == "--":
            break
        if word.replace("_", "-") == "--rdzv-backend" and arguments[position + 1] == "c10d":
            changed[position + 1] = BACKEND
    return changed


def _place(address: str) -> tuple[str, str]:
    return getattr(address, "key", ""), str(address)
