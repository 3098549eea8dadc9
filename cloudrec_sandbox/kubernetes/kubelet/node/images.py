"""Which images exist, and a registry's errors for the others."""

from __future__ import annotations

from dataclasses import dataclass

_KNOWN_PREFIX = "cloudrec"
# Published images with Python: here, this machine's Python with its packages, and nothing of cloudrec's.
_BASES = ("docker.io/library/python", "public.ecr.aws/deep-learning-containers/pytorch")
_STATES = ("present", "missing", "private")
_DIGEST_LENGTH = 71


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An image's name, parsed."""

    registry: str
    repository: str
    tag: str
    digest: str

    @classmethod
    def of(cls, text: str) -> Reference | None:
        """Parse a name; None if no registry would accept it."""
        rest, _, digest = text.partition("@")
        head, slash, tail = rest.rpartition("/")
        name, _, tag = tail.partition(":")
        if not name or any(part != part.lower() or " " in part for part in (head, name)):
            return None
        if digest and (not digest.startswith("sha256:") or len(digest) != _DIGEST_LENGTH):
            return None
        path = f"{head}{slash}{name}"
        first, _, others = path.partition("/")
        if others and ("." in first or ":" in first or first == "localhost"):
            return cls(registry=first, repository=others, tag=tag or "latest", digest=digest)
        repository = path if others else f"library/{path}"
        return cls(registry="docker.io", repository=repository, tag=tag or "latest", digest=digest)

    @property
    def full(self) -> str:
        """Return the full name."""
        end = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.repository}{end}"


def is_base(image: str) -> bool:
    """Return whether an image is a published one with Python, in which pods install cloudrec."""
    reference = Reference.of(image)
    return reference is not None and f"{reference.registry}/{reference.repository}" in _BASES


class Images:
    """The images of registries and nodes; read in the kubelet's thread, changed by /_control."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def order(self, states: dict[str, str]) -> None:
        """Set images, by reference or by repository, to present, missing or private."""
        for name, state in states.items():
            if state not in _STATES:
                raise ValueError(f"image {name!r}: {state!r} is none of {', '.join(_STATES)}")
        self._states.update(states)

    def document(self) -> dict[str, str]:
        """Return what was set."""
        return dict(self._states)

    def clear(self) -> None:
        """Forget it."""
        self._states.clear()

    def problem(self, image: str, *, is_program: bool) -> tuple[str, str] | None:
        """Return the reason and the message if an image cannot be pulled; None if it can."""
        reference = Reference.of(image)
        if reference is None:
            return (
                "InvalidImageName",
                (
                    f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": '
                    "invalid reference format"
                ),
            )
        state = self._state(image, reference, is_program=is_program)
        if state == "present":
            return None
        place = f"{reference.registry}/{reference.repository}"
        full = reference.full
        head = f'failed to pull and unpack image "{full}": failed to resolve reference "{full}"'
        if state == "private":
            scheme = f"https://{reference.registry}/v2/{reference.repository}/manifests"
            end = reference.digest or reference.tag
            cause = f"unexpected status from HEAD request to {scheme}/{end}: 401 Unauthorized"
            return "ErrImagePull", f"{head}: {cause}"
        if place.startswith("docker.io/"):
            return (
                "ErrImagePull",
                (
                    f"{head}: pull access denied, repository does not exist or may require authorization: "
                    "server message: insufficient_scope: authorization failed"
                ),
            )
        return "ErrImagePull", f"rpc error: code = NotFound desc = {head}: {reference.full}: not found"

    def _state(self, image: str, reference: Reference, *, is_program: bool) -> str:
        repository = image.partition("@")[0]
        head, slash, tail = repository.rpartition("/")
        names = (image, repository, f"{head}{slash}{tail.partition(':')[0]}")
        for name in names:
            if name in self._states:
                return self._states[name]
        known = reference.repository.rpartition("/")[2].startswith(_KNOWN_PREFIX)
        return "present" if known or is_program or is_base(image) else "missing"
