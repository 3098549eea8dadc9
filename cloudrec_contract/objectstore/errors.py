"""The errors of object stores. cloudrec and the trainer translate them into errors with a remedy."""

from __future__ import annotations


class StoreUriError(Exception):
    """A URI names no store. The message has the reason without the URI."""


class UnknownSchemeError(StoreUriError):
    """No kind of store has the URI's scheme.

    Attributes:
        scheme: the part before `://`.
        known: all supported schemes.
    """

    def __init__(self, scheme: str, known: tuple[str, ...]) -> None:
        super().__init__(f"the scheme {scheme!r} is not supported")
        self.scheme = scheme
        self.known = known


class MissingDriverError(StoreUriError):
    """A package that the kind of store needs is not installed, or cannot be imported.

    Attributes:
        extra: the extra of cloudrec that installs it.
        module: the module that cannot be imported.
        why: the import error, if the package is installed.
    """

    def __init__(self, extra: str, *, module: str, why: str = "") -> None:
        super().__init__(f"it needs the extra {extra!r}, of which {module} is not installed")
        self.extra = extra
        self.module = module
        self.why = why


class ObjectStoreError(Exception):
    """The store refused, or did not answer.

    Attributes:
        where: the store or the object.
        words: the store's message.
        may_pass: whether the error is transient: the same request may succeed later.
    """

    def __init__(self, where: str, words: str, *, may_pass: bool = False) -> None:
        super().__init__(f"{where}: {words}")
        self.where = where
        self.words = words
        self.may_pass = may_pass


class ObjectExistsError(ObjectStoreError):
    """The name is taken by an object with other bytes."""


class NoObjectError(ObjectStoreError):
    """No object has the name, or the bucket does not exist."""


class AccessDeniedError(ObjectStoreError):
    """The store denies permission."""


class UnauthenticatedError(AccessDeniedError):
    """There are no credentials, or the store does not accept them."""


class DamagedUploadError(ObjectStoreError):
    """The object in the store differs from the uploaded file."""


class FileSystemError(ObjectStoreError):
    """The operating system refused; the cause is its OSError, if it is this machine's."""


class UnsafeFolderError(FileSystemError):
    """A folder of this machine that must be private is not."""


class MissingProgramError(ObjectStoreError):
    """A program of this machine that the store is reached by cannot be started."""


class HostUnreachableError(ObjectStoreError):
    """The login node does not answer at this moment."""


class HostTimeoutError(HostUnreachableError):
    """A program did not end in time; `where` names the program and its host."""


class HostRefusedError(UnauthenticatedError):
    """The login node does not let us in."""


class UnknownHostKeyError(HostRefusedError):
    """The login node shows a key that ssh does not know as its own."""
