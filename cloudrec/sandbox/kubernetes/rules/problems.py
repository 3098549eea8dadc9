"""The fields of one object that are to blame, gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.kubernetes import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec.sandbox.kubernetes.resources import Resource

IMMUTABLE = "field is immutable"


class Problems:
    """Found so far."""

    def __init__(self) -> None:
        self._causes: list[dict[str, str]] = []

    def invalid(self, field: str, value: Any, why: str) -> None:  # noqa: ANN401 - JSON
        """A value that may not be."""
        shown = f'"{value}"' if isinstance(value, str) else errors.go_like(value)
        self._causes.append(errors.cause(field, f"Invalid value: {shown}: {why}"))

    def required(self, field: str, why: str = "") -> None:
        """Something is missing."""
        told = f"Required value: {why}" if why else "Required value"
        self._causes.append(errors.cause(field, told, "FieldValueRequired"))

    def unsupported(self, field: str, value: Any, supported: Iterable[str]) -> None:  # noqa: ANN401 - JSON
        """None of the values that there are."""
        told = ", ".join(f'"{each}"' for each in supported)
        self._causes.append(
            errors.cause(
                field,
                f'Unsupported value: "{value}": supported values: {told}',
                "FieldValueNotSupported",
            )
        )

    def duplicate(self, field: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """There twice."""
        self._causes.append(errors.cause(field, f'Duplicate value: "{value}"', "FieldValueDuplicate"))

    def forbidden(self, field: str, why: str) -> None:
        """May not be there, or not so."""
        self._causes.append(errors.cause(field, f"Forbidden: {why}", "FieldValueForbidden"))

    def missing(self, field: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """Names something that is not there."""
        self._causes.append(errors.cause(field, f'Not found: "{value}"', "FieldValueNotFound"))

    def too_long(self, field: str, limit: int, what: str = "bytes") -> None:
        """Larger than allowed."""
        self._causes.append(
            errors.cause(field, f"Too long: may not be more than {limit} {what}", "FieldValueTooLong")
        )

    def unchanged(
        self, path: str, names: Iterable[str], new: Mapping[str, Any], old: Mapping[str, Any]
    ) -> None:
        """Blame those of the fields that were changed."""
        for name in names:
            if new.get(name) != old.get(name):
                self.invalid(f"{path}.{name}", new.get(name), IMMUTABLE)

    def refuse(self, resource: Resource, name: str) -> None:
        """Raise the refusal where there is something to blame."""
        if self._causes:
            raise errors.invalid(resource.kind, resource.group, name, self._causes)
