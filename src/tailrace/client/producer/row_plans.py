"""`rows_of` and `plan_rows`: the rows of `send_many` as chunks, and the batches of a chunk.

They call the user's code for each row, if there is any, and use the producer's settings and
metadata.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tailrace.client.producer.engine import Engine
from tailrace.client.producer.errors import RejectedRecordError
from tailrace.client.producer.intake.columns import Chunk, RefusedRow, chunks_of
from tailrace.client.producer.intake.row_code import RowCode
from tailrace.client.producer.intake.slices import ANY_PARTITION, Plan, plan_chunk
from tailrace.client.producer.partitioners import DEFAULT_RULE, KEY_RULES


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
    by_key, own_choice = KEY_RULES[engine.config.partitioner], engine.placement.own_choice

    def choose() -> int:
        with engine.lock:
            return engine.placement.choose_for_many(topic)

    def choose_own(row: int) -> int:
        key, value = chunk.keys.item(row), chunk.values.item(row)
        return own_choice(topic, key, value, partition_count=count)

    def choose_by_key(row: int) -> int:
        return by_key(None if ignores_keys else chunk.keys.item(row), count)

    placed = chunk
    if engine.plugins.partitioner is not None:
        placed = _placed(chunk, choose_own)
    elif engine.config.partitioner != DEFAULT_RULE:
        placed = _placed(chunk, choose_by_key)
    return plan_chunk(
        placed,
        partition_count=count,
        batch_size=engine.accumulator.supply.batch_size(topic),
        request_size_max=engine.config.max_request_size,
        now_ms=engine.now_ns() // 1_000_000,
        ignores_keys=ignores_keys or placed is not chunk,
        choose=choose,
    )


def _placed(chunk: Chunk, choose: Callable[[int], int]) -> Chunk:
    """The chunk with partitions that no kernel chooses, for its rows without their own.

    `choose` gets the place of a row in the chunk, and may raise RejectedRecordError.
    """
    partitions = np.full(chunk.row_count, ANY_PARTITION, np.int64)
    if len(chunk.partitions):
        partitions[:] = chunk.partitions
    refused = {each.row: each for each in chunk.refused}
    for place in np.flatnonzero(partitions == ANY_PARTITION).tolist():
        row = chunk.first_row + place
        if row not in refused:
            try:
                partitions[place] = choose(place)
            except RejectedRecordError as error:
                refused[row] = RefusedRow(row, error)
    return chunk._replace(partitions=partitions, refused=list(refused.values()))
