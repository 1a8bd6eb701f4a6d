"""A program that reads a log, where one file of its folder is anything: by records and by columns.

What it gets was written, both ways give the same, and what is left out is told.
"""

from collections.abc import Callable
from itertools import product

from tailrace.errors import CorruptionError, FatalError
from tailrace.model import Codec
from tailrace.reading.log import Isolation, Log, OnDamage
from tailrace.records.builder import records_of
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    open_at,
    settings,
    stop_cleanly,
)
from tests.unit.storage.transactional import TransactionalProducer

REFUSALS = (CorruptionError, FatalError)
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
WAYS: tuple[OnDamage, ...] = ("raise", "skip")

FILES = MemoryFiles()
_LOG = open_at(FILES, config=settings(segment_bytes=500, index_interval_bytes=60))
for _number in range(6):
    _producer = TransactionalProducer(_LOG, _number)
    _producer.append(2, value=b"value %d" % _number)
    append(_LOG, batch(b"plain %d" % _number, timestamps=[NOW + _number]))
    if _number % 3 < 2:
        _producer.end(is_commit=bool(_number % 3))
append(_LOG, batch(b"x" * 100, b"y" * 40, codec=Codec.GZIP, timestamps=[NOW + 40, NOW + 30]))
WRITTEN = {record.value for each in _LOG.batches(0) for record in records_of(each)}
stop_cleanly(_LOG)


def read_log(name: str, isolation: Isolation, on_damage: OnDamage) -> Callable[[bytes], object]:
    """A target that reads the whole log, and from a time on, with one file replaced."""

    def run(data: bytes) -> object:
        files = FILES.crash(keep_unsynced=True)
        files.overwrite(name, data)
        log = Log(files, FOLDER, PARTITION, isolation=isolation, on_damage=on_damage)
        records = [(each.offset, each.value) for each in log.records()]
        assert {value for _, value in records} <= WRITTEN
        table = log.arrow(["offset", "value"]).read_all().to_pydict()
        assert list(zip(table["offset"], table["value"], strict=True)) == records
        late = [(each.offset, each.value) for each in log.records(start_time=NOW + 3)]
        assert set(late) <= set(records)
        assert on_damage == "skip" or not log.skipped
        return log.statistics()

    return run


TARGETS = tuple(
    FuzzTarget(
        name=f"{on_damage} {isolation} {name.rpartition('/')[2]}",
        seeds=(FILES.content(name),),
        run=read_log(name, isolation, on_damage),
        refusals=REFUSALS,
        share=0.25,
    )
    for name in (f"{FOLDER}/{each}" for each in FILES.list(FOLDER))
    if name.endswith((".log", "index", ".snapshot")) and FILES.content(name)
    for isolation, on_damage in product(ISOLATIONS, WAYS)
)
