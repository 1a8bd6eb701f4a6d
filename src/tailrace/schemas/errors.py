"""Errors of schemas: by who must act, as in `tailrace.errors`.

SchemaError                a schema that cannot be used
UnencodableError           a value that its schema does not allow
UndecodableError           bytes that are no value of the schema; belongs to one record
RegistryRefusedError       the registry answered with an error
RegistryUnavailableError   no registry answered; the same call may go through later
"""

from tailrace.errors import FatalError, RetriableError


class SchemaError(FatalError, ValueError):
    """A schema that cannot be read, that is too large or too deep, or that no reader may have."""


class UnencodableError(FatalError, ValueError):
    """A value that does not fit its schema; nothing was encoded."""


class UndecodableError(FatalError, ValueError):
    """Bytes that do not hold a value of the schema; the records beside it are not concerned."""

    def __init__(
        self, rule: str, *, topic: str | None = None, schema_id: int | None = None
    ) -> None:
        self.rule = rule
        """The fault, with its values."""
        self.topic = topic
        self.schema_id = schema_id
        """The id that the bytes name, where there is one."""
        super().__init__(rule)

    def __str__(self) -> str:
        places = [
            "" if self.topic is None else f"topic {self.topic}",
            "" if self.schema_id is None else f"schema {self.schema_id}",
        ]
        place = ", ".join(each for each in places if each)
        return f"{place}: {self.rule}" if place else self.rule

    # An exception is pickled with its `args`, which lack the keywords; Spark's workers send errors
    # to the driver.
    def __reduce__(self) -> tuple[object, ...]:
        return _undecodable, (self.rule, self.topic, self.schema_id)


def _undecodable(rule: str, topic: str | None, schema_id: int | None) -> UndecodableError:
    return UndecodableError(rule, topic=topic, schema_id=schema_id)


class RegistryRefusedError(FatalError):
    """The registry answered a request with an error, or with something that is no answer."""

    def __init__(self, sentence: str, *, status: int = 0, code: int = 0) -> None:
        self.status = status
        """The HTTP status; 0 where the answer could not be read."""
        self.code = code
        """The registry's own error code, such as 40403; 0 where there is none."""
        super().__init__(sentence)

    @property
    def is_missing(self) -> bool:
        """Whether the registry does not have what was asked for."""
        # 40401 for a subject, 40402 for a version and 40403 for an id all come with this status.
        return self.status == 404


class RegistryUnavailableError(RetriableError):
    """No URL of the registry answered in time."""
