"""Logs on a disk in memory, and what a program reads of them."""

from collections.abc import Callable, Iterable

from tailrace.reading.log import Log
from tailrace.runtime.files import Files
from tests.unit.storage.builders import FOLDER, PARTITION

Rows = list[tuple[int, bytes | None]]
"""Offset and value of records."""

FORMATS = ("records", "batches", "arrow")


def a_log(files: Files, *, pause: Callable[[float], object] | None = None, **options: str) -> Log:
    """The log in `FOLDER`; `pause` is called where it would wait."""
    return Log(files, FOLDER, PARTITION, pause=pause, **options)  # type: ignore[arg-type]


def offsets_as(form: str, log: Log, **bounds: object) -> list[int]:
    """The offsets of a range in one of `FORMATS`; of batches, their first ones."""
    return list(offsets_in(form, log, **bounds))


def offsets_in(form: str, log: Log, **bounds: object) -> Iterable[int]:
    """The same, one by one."""
    if form == "records":
        yield from (record.offset for record in log.records(**bounds))  # type: ignore[arg-type]
    elif form == "batches":
        yield from (each.batch.base_offset for each in log.batches(**bounds))  # type: ignore[arg-type]
    else:
        for batch in log.arrow(["offset"], **bounds):  # type: ignore[arg-type]
            yield from batch.column(0).to_pylist()


def rows_of(log: Log, **bounds: object) -> Rows:
    """Offsets and values of a range."""
    return [(each.offset, each.value) for each in log.records(**bounds)]  # type: ignore[arg-type]
