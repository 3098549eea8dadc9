"""The wrong fields of one object, collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.objects import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.kubernetes.objects.resources import Resource

IMMUTABLE = "field is immutable"


class Problems:
    """The problems found so far."""

    def __init__(self) -> None:
        self._causes: list[dict[str, str]] = []

    def invalid(self, field: str, value: Any, why: str) -> None:  # noqa: ANN401 - JSON
        """Add a value that is not allowed."""
        shown = f'"{value}"' if isinstance(value, str) else errors.go_like(value)
        self._causes.append(errors.cause(field, f"Invalid value: {shown}: {why}"))

    def invalid_whole(self, field: str, why: str) -> None:
        """Add a field whose value is too long to show."""
        self._causes.append(errors.cause(field, f"Invalid value: {why}"))

    def required(self, field: str, why: str = "") -> None:
        """Add a missing value."""
        text = f"Required value: {why}" if why else "Required value"
        self._causes.append(errors.cause(field, text, "FieldValueRequired"))

    def unsupported(self, field: str, value: Any, supported: Iterable[str]) -> None:  # noqa: ANN401 - JSON
        """Add a value that is none of the supported ones."""
        text = ", ".join(f'"{each}"' for each in supported)
        self._causes.append(
            errors.cause(
                field,
                f'Unsupported value: "{value}": supported values: {text}',
                "FieldValueNotSupported",
            )
        )

    def duplicate(self, field: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """Add a value that occurs twice."""
        self._causes.append(errors.cause(field, f'Duplicate value: "{value}"', "FieldValueDuplicate"))

    def forbidden(self, field: str, why: str) -> None:
        """Add a field that is not allowed, or not this way."""
        self._causes.append(errors.cause(field, f"Forbidden: {why}", "FieldValueForbidden"))

    def missing(self, field: str, value: Any) -> None:  # noqa: ANN401 - JSON
        """Add a reference to something that does not exist."""
        self._causes.append(errors.cause(field, f'Not found: "{value}"', "FieldValueNotFound"))

    def too_long(self, field: str, limit: int, what: str = "bytes") -> None:
        """Add a value that is too long."""
        self._causes.append(
            errors.cause(field, f"Too long: may not be more than {limit} {what}", "FieldValueTooLong")
        )

    def too_many(self, field: str, count: int, limit: int) -> None:
        """Add a list that is too long."""
        text = f"Too many: {count}: must have at most {limit} items"
        self._causes.append(errors.cause(field, text, "FieldValueTooMany"))

    def unchanged(
        self, path: str, names: Iterable[str], new: Mapping[str, Any], old: Mapping[str, Any]
    ) -> None:
        """Add those of the fields that were changed."""
        for name in names:
            if new.get(name) != old.get(name):
                self.invalid(f"{path}.{name}", new.get(name), IMMUTABLE)

    def refuse(self, resource: Resource, name: str) -> None:
        """Raise the refusal if there is any problem."""
        if self._causes:
            raise errors.invalid(resource.kind, resource.group, name, self._causes)
