"""`plan_rows`: the batches of rows of `send_many`, by the producer's settings and metadata."""

import numpy as np

from tailrace.client.producer.engine import Engine
from tailrace.client.producer.intake.columns import Chunk
from tailrace.client.producer.intake.slices import ANY_PARTITION, Plan, plan_chunk
from tailrace.client.producer.partitioners import DEFAULT_RULE, KEY_RULES, KeyRule


def plan_rows(engine: Engine, topic: str, chunk: Chunk) -> Plan:
    """Plan the batches of a chunk of rows; the topic's metadata must be known."""
    count = engine.metadata.partition_count(topic)
    assert count is not None, "asked to plan for an unknown topic"

    def choose() -> int:
        with engine.lock:
            return engine.placement.choose_for_many(topic)

    ignores_keys, rule = engine.config.partitioner_ignore_keys, engine.config.partitioner
    if rule != DEFAULT_RULE:
        chunk = _placed_by(KEY_RULES[rule], chunk, count, ignores_keys=ignores_keys)
        ignores_keys = True
    return plan_chunk(
        chunk,
        partition_count=count,
        batch_size=engine.accumulator.supply.batch_size(topic),
        request_size_max=engine.config.max_request_size,
        now_ms=int(engine.wall() * 1000),
        ignores_keys=ignores_keys,
        choose=choose,
    )


def _placed_by(rule: KeyRule, chunk: Chunk, count: int, *, ignores_keys: bool) -> Chunk:
    """The chunk with the partitions of a rule that has no kernel, for rows without their own."""
    partitions = np.full(chunk.row_count, ANY_PARTITION, np.int64)
    if len(chunk.partitions):
        partitions[:] = chunk.partitions
    data, ends = chunk.keys.data, chunk.keys.ends.tolist()
    for row in np.flatnonzero(partitions == ANY_PARTITION).tolist():
        key = None
        if ends and ends[row + 1] >= 0 and not ignores_keys:
            start = ends[row] if ends[row] >= 0 else ~ends[row]
            key = data[start : ends[row + 1]].tobytes()
        partitions[row] = rule(key, count)
    return chunk._replace(partitions=partitions)
