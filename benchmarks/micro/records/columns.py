"""Records to Arrow columns: `ColumnsBuilder`, and its kernel alone, against copying the bytes."""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.macro.load import build_batch
from benchmarks.measure import Bench, Figure, interleave, seconds_of
from tailrace import kernels
from tailrace.kernels import Payload
from tailrace.kernels.records import WANT_KEY, WANT_OFFSET, WANT_TIMESTAMP, WANT_VALUE
from tailrace.records.batch import Batch
from tailrace.records.columns import ColumnsBuilder
from tailrace.records.layout import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_BYTES = {"16 KB": 16 * 1024, "1 MB": 1024 * 1024}
SOURCE_BYTES = 256 * 1024 * 1024
"""More than any cache of a processor, so that all contenders read memory."""

WANTED = WANT_KEY | WANT_VALUE | WANT_OFFSET | WANT_TIMESTAMP
INT64_MAX = 2**63 - 1
PEER = "memcpy"

Array = np.ndarray[Any, Any]


def measure_decode(bench: Bench) -> list[Figure]:
    """GB of batches per second, for both sizes of batch."""
    return [figure for label in BATCH_BYTES for figure in _measure_size(bench, label)]


def _measure_size(bench: Bench, label: str) -> list[Figure]:
    built = build_batch(BATCH_BYTES[label])
    size = len(built.data)
    batch_count = bench.scaled(SOURCE_BYTES, quick=8_000_000) // size
    bench.say(f"decode, {label} batches: {batch_count} a round")
    source = np.tile(np.frombuffer(built.data, np.uint8), batch_count)
    target = np.zeros_like(source)
    view = source.data
    batches = [Batch(view[start : start + size]) for start in range(0, len(source), size)]
    contenders: dict[str, Callable[[], object]] = {
        "builder": partial(_build_columns, batches),
        "peer": partial(np.copyto, target, source),
        "kernel": partial(_run_kernel, source, size, record_count=built.record_count),
    }
    found = interleave(
        bench, {name: partial(seconds_of, work) for name, work in contenders.items()}
    )
    speeds = {
        name: tuple(len(source) / 1e9 / seconds for seconds in values)
        for name, values in found.items()
    }
    return [
        Figure(
            name=f"decode to Arrow, {label} batches, {what}",
            unit="GB/s",
            ours=speeds[name],
            peer_name=PEER,
            peer=speeds["peer"],
        )
        for name, what in (("builder", "ColumnsBuilder"), ("kernel", "kernel alone"))
    ]


def _build_columns(batches: list[Batch]) -> None:
    """All batches through one builder, in record batches of its own size."""
    builder = ColumnsBuilder()
    rows = 0
    for batch in batches:
        builder.append(batch, start_offset=0, limit_offset=INT64_MAX)
        if not builder.has_room:
            rows += builder.finish().num_rows
    rows += builder.finish().num_rows
    assert rows == sum(batch.record_count for batch in batches)


def _run_kernel(source: Array, size: int, *, record_count: int) -> None:
    """The kernel over every batch, each into the same columns."""
    cursors = np.zeros(4, np.int64)
    outputs = (
        cursors, np.zeros(record_count, np.int64), np.zeros(record_count, np.int64),
        np.zeros(record_count + 1, np.int32), np.zeros(record_count, np.uint8),
        np.zeros(0, np.uint8),
        np.zeros(record_count + 1, np.int32), np.zeros(record_count, np.uint8),
        np.zeros(size, np.uint8),
    )  # fmt: skip
    read_only = source.view()
    read_only.flags.writeable = False
    for start in range(0, len(source), size):
        cursors[:] = 0
        payloads = np.zeros(len(Payload), np.int64)
        payloads[Payload.POSITION] = start + HEADER_SIZE
        payloads[Payload.LIMIT] = start + size
        payloads[Payload.RECORD_COUNT] = record_count
        payloads[Payload.KEEPS_DELTAS] = 1
        rows = kernels.decode_records(
            read_only, payloads, record_count, 0, INT64_MAX, WANTED, *outputs
        )
        assert rows == record_count
