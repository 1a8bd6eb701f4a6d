"""`rows_of` and `plan_rows`: the rows of `send_many` through the user's code, to batches.

Interceptors, serializers and a partitioner are called as for a record of `send`, and in the same
order. A row that one of them fails on is refused, and does not affect the others. Only `topic`
cannot be changed by an interceptor here.

Not here: how columns are read (`columns`), and how rows are cut into batches (`slices`).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import ProducerError, RejectedRecordError, SerializationError
from tailrace.client.producer.intake.columns import (
    COLUMNS,
    Chunk,
    RefusedRow,
    absent,
    chunks_of,
    integers_of,
    items_of,
)
from tailrace.client.producer.intake.records import plain_record
from tailrace.client.producer.intake.slices import ANY_PARTITION, Plan, plan_chunk
from tailrace.client.producer.partitioners import DEFAULT_RULE, KEY_RULES
from tailrace.client.producer.plugins import (
    ProducerInterceptors,
    ProducerRecord,
    serialize,
)
from tailrace.client.user_code import function_for
from tailrace.config.settings import INT64_MAX

if TYPE_CHECKING:
    from tailrace.client.producer.plugins import Plugins


_INTEGERS: Final = ("timestamp", "partition")

_TRACES_MAX: Final = 1000
"""Most errors of a chunk that keep their tracebacks: frames take more memory than all else."""


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
        return changed, [RefusedRow(first_row + index, errors[index]) for index in sorted(errors)]

    def _intercepted(
        self, columns: Mapping[str, Any], errors: dict[int, ProducerError]
    ) -> dict[str, list[Any]]:
        items = {name: _fields(name, column) for name, column in columns.items()}
        records = []
        for index, fields in enumerate(zip(*items.values(), strict=True)):
            record = ProducerRecord(self._topic, **dict(zip(items, fields, strict=True)))
            try:
                record = self._through_interceptors(record)
            except (TypeError, ValueError) as error:
                errors[index] = RejectedRecordError(str(error))
                errors[index].__cause__ = error
                # Keeps the index of the row; it is refused, and not sent.
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
        # UnicodeEncodeError is a ValueError: here it refuses the row, and later the whole chunk.
        for name, _ in changed.headers:
            name.encode()
        return changed

    def _serialized(self, name: str, column: object, errors: dict[int, ProducerError]) -> object:
        plugins = self._plugins
        serializer = plugins.key_serializer if name == "key" else plugins.value_serializer
        if serializer is None and not self._interceptors:
            return column
        setting, made = (
            f"{name}_serializer",
            function_for(serializer, self._topic, method="serialize"),
        )
        serialized: list[bytes | None] = []
        for index, item in enumerate(items_of(column)):
            done = None
            if index not in errors:
                try:
                    done = serialize(item, made, setting=setting)
                except SerializationError as error:
                    if len(errors) >= _TRACES_MAX:
                        error.__cause__ = error.__context__ = None
                        error.__traceback__ = None
                    errors[index] = error
            serialized.append(done)
        return serialized


def _fields(name: str, column: object) -> list[Any]:
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


def rows_of(engine: Engine, topic: str, rows: object) -> Iterator[Chunk]:
    """The rows in chunks, after the producer's interceptors and serializers."""
    if not engine.plugins.changes_rows:
        return chunks_of(rows)
    return chunks_of(rows, RowCode(topic, engine.plugins, engine.interceptors).change)


def plan_rows(engine: Engine, topic: str, chunk: Chunk) -> Plan:
    """Plan the batches of a chunk of rows; the topic's metadata must be known."""
    count = engine.metadata.partition_count(topic)
    assert count is not None, "asked to plan for an unknown topic"
    ignores_keys = engine.config.partitioner_ignore_keys
    by_key, own_choice = KEY_RULES[engine.config.partitioner], engine.partitioning.own_choice

    # `plan_rows` runs without the lock, since it may call a user's partitioner.
    def choose() -> int:
        with engine.lock:
            return engine.partitioning.choose_for_many(topic)

    def choose_own(row: int) -> int:
        key, value = chunk.keys.item(row), chunk.values.item(row)
        return own_choice(topic, key, value, partition_count=count)

    def choose_by_key(row: int) -> int:
        return by_key(None if ignores_keys else chunk.keys.item(row), count)

    # murmur2, the default, is computed by a kernel for the whole chunk; others row by row.
    placed = chunk
    if engine.plugins.partitioner is not None:
        placed = _with_partitions(chunk, choose_own)
    elif engine.config.partitioner != DEFAULT_RULE:
        placed = _with_partitions(chunk, choose_by_key)
    return plan_chunk(
        placed,
        partition_count=count,
        batch_size=engine.accumulator.supply.batch_size(topic),
        request_size_max=engine.config.max_request_size,
        now_ms=engine.now_ns() // 1_000_000,
        ignores_keys=ignores_keys or placed is not chunk,
        choose=choose,
    )


def _with_partitions(chunk: Chunk, choose: Callable[[int], int]) -> Chunk:
    """The chunk with partitions that no kernel chooses, for its rows without their own.

    `choose` gets the index of a row in the chunk, and may raise RejectedRecordError.
    """
    partitions = np.full(chunk.row_count, ANY_PARTITION, np.int64)
    if len(chunk.partitions):
        partitions[:] = chunk.partitions
    refused = {each.row: each for each in chunk.refused}
    for index in np.flatnonzero(partitions == ANY_PARTITION).tolist():
        row = chunk.first_row + index
        if row not in refused:
            try:
                partitions[index] = choose(index)
            except RejectedRecordError as error:
                refused[row] = RefusedRow(row, error)
    return chunk._replace(partitions=partitions, refused=list(refused.values()))
