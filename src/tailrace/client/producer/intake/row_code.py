"""`RowCode`: calls the interceptors and serializers of a producer for the rows of `send_many`.

Each is called as for a record of `send`, and in the same order. A row that one of them fails on is
refused, and does not affect the others. Only `topic` cannot be changed by an interceptor here.

Not here: custom partitioners, which see serialized rows (`row_plans`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.client.producer.errors import (
    ProducerError,
    RejectedRecordError,
    SerializationError,
)
from tailrace.client.producer.intake.arguments import plain_record
from tailrace.client.producer.intake.columns import (
    COLUMNS,
    RefusedRow,
    absent,
    integers_of,
    items_of,
)
from tailrace.client.producer.intake.interceptors import ProducerInterceptors
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.intake.serializers import serialize
from tailrace.config.settings import INT64_MAX

if TYPE_CHECKING:
    from tailrace.client.producer.intake.plugins import Plugins

_INTEGERS: Final = ("timestamp", "partition")


class RowCode:
    """The user code for rows of one topic."""

    def __init__(self, topic: str, plugins: "Plugins", interceptors: ProducerInterceptors) -> None:
        self._topic = topic
        self._plugins = plugins
        self._interceptors = interceptors

    def change(
        self, columns: Mapping[str, Any], first_row: int
    ) -> tuple[Mapping[str, Any], list[RefusedRow]]:
        """The columns to send, and the rows that cannot be sent.

        `columns` may be of any kind that `chunks_of` takes; those returned are so too.
        """
        errors: dict[int, ProducerError] = {}
        if self._interceptors:
            columns = self._intercepted(columns, errors)
        changed = dict(columns)
        for name in ("key", "value"):
            if name in columns:
                changed[name] = self._serialized(name, columns[name], errors)
        return changed, [RefusedRow(first_row + place, errors[place]) for place in sorted(errors)]

    def _intercepted(
        self, columns: Mapping[str, Any], errors: dict[int, ProducerError]
    ) -> dict[str, list[Any]]:
        items = {name: _fields(name, column) for name, column in columns.items()}
        records = []
        for place, fields in enumerate(zip(*items.values(), strict=True)):
            record = ProducerRecord(self._topic, **dict(zip(items, fields, strict=True)))
            try:
                record = self._through_interceptors(record)
            except (TypeError, ValueError) as error:
                errors[place] = RejectedRecordError(str(error))
                errors[place].__cause__ = error
                record = ProducerRecord(self._topic)
            records.append(record)
        return {name: [getattr(record, name) for record in records] for name in COLUMNS}

    def _through_interceptors(self, record: ProducerRecord) -> ProducerRecord:
        """The record that the interceptors return; ValueError or TypeError if it cannot be sent."""
        record = plain_record(record, self._plugins)
        changed = self._interceptors.on_send(record)
        try:
            changed = plain_record(changed, self._plugins)
        except TypeError as error:
            raise TypeError(f"after the interceptors, {error}") from error
        if changed.topic != self._topic:
            raise ValueError(
                f"an interceptor changed its topic to {changed.topic!r}; all rows of send_many "
                f"go to {self._topic!r}, so use send for each record"
            )
        for name in _INTEGERS:
            if abs(getattr(changed, name) or 0) > INT64_MAX:
                raise ValueError(f"after the interceptors, its {name} does not fit 64 bits")
        for name, _ in changed.headers:
            name.encode()
        return changed

    def _serialized(self, name: str, column: object, errors: dict[int, ProducerError]) -> object:
        plugins = self._plugins
        serializer = plugins.key_serializer if name == "key" else plugins.value_serializer
        if serializer is None and not self._interceptors:
            return column
        setting = f"{name}_serializer"
        serialized: list[bytes | None] = []
        for place, item in enumerate(items_of(column)):
            done = None
            if place not in errors:
                try:
                    done = serialize(item, serializer, setting=setting)
                except SerializationError as error:
                    errors[place] = error
            serialized.append(done)
        return serialized


def _fields(name: str, column: object) -> list[Any]:
    """The items of a column as fields of a `ProducerRecord`."""
    if name in _INTEGERS:
        if not len(numbers := integers_of(name, column)):
            return [None] * len(column)  # type: ignore[arg-type]
        return [None if number == absent(name) else number for number in numbers.tolist()]
    items = items_of(column)
    return [_pairs(each) for each in items] if name == "headers" else items


def _pairs(headers: object) -> object:
    """Headers as `send` takes them: pairs, where Arrow's lists have structs."""
    if not isinstance(headers, list):
        return headers
    return [tuple(each.values()) if isinstance(each, dict) else each for each in headers]
