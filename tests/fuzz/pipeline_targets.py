"""Fuzz targets of the pipeline: six kinds of JSON that others may have written or damaged."""

import json
from typing import Any
from uuid import UUID

import pyarrow as pa

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.errors import ConfigError, CorruptionError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.folder import DiskFolder
from tailrace.spark.jobs.json_values import arrow_type, infer_type, parse_values, schema_json
from tailrace.spark.jobs.manifest import MANIFEST, Manifest
from tailrace.spark.options import parse_options
from tailrace.spark.progress import (
    INITIAL,
    Progress,
    committed_positions,
    format_offset,
    parse_batch,
    parse_offset,
)
from tailrace.spark.sink.ledger import BatchRecord, Ledger, Slot, SlotState
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget

_FORM = "fuzzed/1"
_FOLD = f"{MANIFEST}/{0:020}-{15:020}.json"
_ENTRIES = [{"name": "part/f0.data", "first": 10, "limit": 20}]
_NOTE = BatchRecord(
    query_id="q",
    batch_id=7,
    cluster_id="c",
    slots={
        0: Slot(
            row_count=3,
            digest="ab",
            transaction=PreparedTransaction("tailrace-q-0-0", 7, 2, 2),
            last_offsets={TopicPartition("t", 1): 41},
        ),
        1: Slot(row_count=0, digest="cd", transaction=None, state=SlotState.COMMITTED),
    },
)
_KIND = pa.struct(
    [("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64())), ("d", pa.date32())]
)
_GOOD = b'{"n": 7, "s": "text", "l": [1.5, null], "d": "2024-01-31"}'
_SPARK_SCHEMA = {
    "type": "struct",
    "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}],
}
_GOOD_ROW = parse_values(pa.array([_GOOD]), _KIND)[0].to_pylist()[0]


def read_manifest(data: bytes) -> object:
    """Open a directory with such a manifest: what is taken is what was written."""
    folder = DiskFolder("/lake", MemoryFiles())
    folder.replace(f"{MANIFEST}/{0:020}.json", data)
    found = Manifest.open(folder, form=_FORM)
    assert (found.entries, found.settings) == (_ENTRIES, {"to": "t"})
    return found


def read_fold(data: bytes) -> object:
    """Open a directory with such a fold."""
    folder = DiskFolder("/lake", MemoryFiles())
    folder.replace(_FOLD, data)
    found = Manifest.open(folder, form=_FORM)
    assert (found.entries, found.settings) == (_ENTRIES, {"to": "t"})
    assert found.entries_since(1) == []
    return found


def read_note(data: bytes) -> object:
    """Open the notes of an exactly-once sink: what is taken is what was written."""
    folder = DiskFolder("/checkpoint", MemoryFiles())
    folder.replace(f"{7:020}.json", data)
    found = Ledger(folder).newest()
    assert found == _NOTE
    return found


def read_offsets(data: bytes) -> object:
    """Take the two offsets of a batch, as Spark gives them from a checkpoint."""
    start, end = (_object(line) for line in (data + b"\n").split(b"\n", 2)[:2])
    committed_positions(end)
    progress = parse_offset(end)
    assert parse_offset(format_offset(progress)) == progress
    return parse_batch(start, end)


def read_options(data: bytes) -> object:
    """Parse options whose values are JSON: offsets, timestamps and partitions."""
    text = data.decode(errors="replace")
    return [
        parse_options({"path": "/data", "subscribe": "a", name: text})
        for name in ("startingOffsets", "endingOffsets", "startingOffsetsByTimestamp")
    ]


def read_value(data: bytes) -> object:
    """Parse a JSON value between two good ones, which it leaves as they are."""
    rows, bad = parse_values(pa.array([_GOOD, data, _GOOD]), _KIND)
    assert {each.row for each in bad} <= {1}
    assert [rows[0].as_py(), rows[2].as_py()] == [_GOOD_ROW, _GOOD_ROW]
    return infer_type([data])


def read_schema(data: bytes) -> object:
    """Take a schema of values in JSON; DDL is parsed by Spark itself."""
    return arrow_type(schema_json(data.decode(errors="replace")))


def _object(line: bytes) -> dict[str, Any]:
    """Spark refuses by itself what is no JSON, or no object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _manifest() -> bytes:
    folder = DiskFolder("/lake", MemoryFiles())
    Manifest.open(folder, form=_FORM).add(_ENTRIES, settings={"to": "t"})
    return folder.read(f"{MANIFEST}/{0:020}.json")


def _fold() -> bytes:
    folder = DiskFolder("/lake", MemoryFiles())
    manifest = Manifest.open(folder, form=_FORM)
    manifest.add(_ENTRIES, settings={"to": "t"})
    for _ in range(16):
        manifest.add([])
    return folder.read(_FOLD)


def _note() -> bytes:
    folder = DiskFolder("/checkpoint", MemoryFiles())
    Ledger(folder).write(_NOTE)
    return folder.read(f"{7:020}.json")


def _offsets() -> bytes:
    start = {TopicPartition("a", 0): 3, TopicPartition("a", 1): 4}
    end = Progress(
        positions={TopicPartition("a", 0): 9},
        topic_ids={TopicPartition("a", 0): UUID(int=5), TopicPartition("a", 1): UUID(int=6)},
        gone={TopicPartition("a", 1): 4},
    )
    return b"\n".join(
        json.dumps(each).encode() for each in (INITIAL, format_offset(end, first=start))
    )


TARGETS = (
    FuzzTarget(
        name="manifest of a job",
        seeds=(_manifest(),),
        run=read_manifest,
        refusals=(CorruptionError, FatalError),
    ),
    FuzzTarget(
        name="fold of a manifest",
        seeds=(_fold(),),
        run=read_fold,
        refusals=(CorruptionError, FatalError),
    ),
    FuzzTarget(
        name="note of an exactly-once sink",
        seeds=(_note(),),
        run=read_note,
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="offsets of a stream",
        seeds=(_offsets(), b"{}\n{}"),
        run=read_offsets,
        refusals=(FatalError,),
    ),
    FuzzTarget(
        name="offsets in options",
        seeds=(b'{"a": {"0": 3, "1": -2}}', b'{"a": "170"}', b"latest", b"[" * 2000),
        run=read_options,
        refusals=(ConfigError,),
    ),
    FuzzTarget(
        name="JSON values",
        seeds=(
            _GOOD,
            b'{"n": 1}',
            b'{"n": {"n": [[{}]]}}',
            b"[" * 2000,
            b'{"a":' * 300 + b"1" + b"}" * 300,
        ),
        run=read_value,
        refusals=(FatalError,),
        share=0.2,
    ),
    FuzzTarget(
        name="schemas of JSON values",
        seeds=(
            json.dumps(_SPARK_SCHEMA).encode(),
            b'{"type":' * 2000,
        ),
        run=read_schema,
        refusals=(ConfigError,),
        share=0.2,
    ),
)
