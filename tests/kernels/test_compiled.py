"""The room of the kernels as a whole: that it is compiled, what it refuses, and what it leaves."""

import gc
import os
import resource
import shutil
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tailrace
from tailrace import kernels
from tailrace.kernels import RecordFault, Total, batch_header, records, rows
from tailrace.records import layout
from tailrace.records.layout import HEADER, HEADER_SIZE, LOG_OVERHEAD
from tests.kernels.guards import walled
from tests.kernels.plain import ORDER, PLAIN, ROOT, as_plain, both_engines, engine
from tests.naive import NaiveRecord, write_records

PACKAGE = Path(tailrace.__file__).parent

RECORDS = [NaiveRecord(place, place, b"key", b"value" * 3, ((b"h", b"x"),)) for place in range(40)]
PAYLOAD = write_records(RECORDS)


def test_every_module_with_types_is_compiled_and_has_a_plain_twin() -> None:
    """No part of them is left to Python, or to this comparison."""
    found = (path.relative_to(ROOT).with_suffix("") for path in PACKAGE.rglob("*.pxd"))
    assert sorted(ORDER) == sorted(".".join(each.parts) for each in found)
    for name, plain in PLAIN.items():
        assert str(plain.__file__).endswith(".py")
        assert not str(import_module(name).__file__).endswith(".py")


def test_the_header_of_a_batch_is_one_for_c_python_and_the_layout() -> None:
    """The constants of compiled modules, of uncompiled ones and of the layout are the same."""
    compiled, plain = (
        {name: number for name, number in vars(module).items() if isinstance(number, int)}
        for module in (batch_header, PLAIN[batch_header.__name__])
    )
    assert compiled == plain
    for name, number in plain.items():
        assert number == getattr(layout, name.replace("_AT", "_POSITION")), name


@pytest.mark.parametrize("hidden", ["", "sys.modules['cython'] = None; "], ids=["Cython", "none"])
def test_a_checkout_that_is_not_compiled_says_so(hidden: str, tmp_path: Path) -> None:
    """The error of the import names the remedy, whether or not Cython is installed."""
    bare = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    (tmp_path / "tailrace").mkdir()
    shutil.copy(PACKAGE / "__init__.py", tmp_path / "tailrace")
    shutil.copytree(PACKAGE / "kernels", tmp_path / "tailrace" / "kernels", ignore=bare)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {hidden}import tailrace.kernels"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ImportError: tailrace.kernels is not compiled; in a checkout run `make" in done.stderr


def test_importing_stays_light() -> None:
    """The kernels work without Cython and without numpy."""
    code = """
import sys
sys.modules["cython"] = sys.modules["Cython"] = sys.modules["numpy"] = None
from tailrace import kernels
import tailrace.kernels.commits, tailrace.kernels.encoding, tailrace.kernels.record_block
import tailrace.kernels.index_entries, tailrace.kernels.showing
print(kernels.walk_records(b"", 0, 0, 0, kernels.int64s(7)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "0"


WALK = (b"", 0, 0, 0, kernels.int64s(7))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (WALK[:-1], TypeError),
        ((*WALK, 0), TypeError),
        ((5, *WALK[1:]), TypeError),
        (("text", *WALK[1:]), TypeError),
        (([1], *WALK[1:]), TypeError),
        ((b"", "0", *WALK[2:]), TypeError),
        ((b"", None, *WALK[2:]), TypeError),
        ((b"", 1 << 63, *WALK[2:]), OverflowError),
        ((b"", -(1 << 63) - 1, *WALK[2:]), OverflowError),
        ((*WALK[:-1], bytes(56)), BufferError),
        ((*WALK[:-1], memoryview(bytes(56)).cast("q")), BufferError),
        ((*WALK[:-1], memoryview(bytearray(112)).cast("q")[::2]), BufferError),
        ((*WALK[:-1], bytearray(56)), ValueError),
        ((*WALK[:-1], array("Q", bytes(56))), ValueError),
        ((*WALK[:-1], array("i", bytes(28))), ValueError),
        ((*WALK[:-1], array("d", bytes(56))), ValueError),
        ((*WALK[:-1], np.zeros(7, np.dtype(">i8"))), ValueError),
        ((*WALK[:-1], np.zeros((7, 1), np.int64)), ValueError),
        ((*WALK[:-1], None), IndexError),
    ],
    ids=[
        "too few", "too many", "no buffer", "text", "a list", "no int", "nothing for an int",
        "beyond int64", "below int64", "bytes for integers", "read-only", "gaps",
        "bytes that may be written", "unsigned", "of 32 bits", "floats", "big endian",
        "two dimensions", "nothing",
    ],
)  # fmt: skip
def test_what_a_kernel_cannot_take_is_refused(
    arguments: tuple[object, ...], error: type[Exception]
) -> None:
    """A wrong argument is an exception, and the buffers that were taken before are given back."""
    with pytest.raises(error):
        engine("compiled", kernels.walk_records)(*arguments)
    if len(arguments) == len(WALK) and arguments[0] == b"":
        buffer = bytearray(8)
        with pytest.raises(error):
            engine("compiled", kernels.walk_records)(buffer, *arguments[1:])
        buffer.append(0)


def test_buffers_are_given_back() -> None:
    """They can be made larger after a call, and nothing refers to them any more."""
    data, totals = bytearray(PAYLOAD), kernels.int64s(len(Total))
    before = sys.getrefcount(data), sys.getrefcount(totals)
    for count in (len(RECORDS), -1, 2**62):
        engine("compiled", kernels.walk_records)(data, 0, len(data), count, totals)
    data.append(0)
    totals.append(0)
    assert (sys.getrefcount(data), sys.getrefcount(totals)) == before


def test_minus_one_is_an_argument_like_others() -> None:
    """Python's C interface uses it for errors too."""
    status = engine("compiled", kernels.walk_records)(b"", 0, 0, -1, kernels.int64s(7))
    assert status == -RecordFault.RECORD_COUNT


@pytest.mark.parametrize("number", [np.int64(0), np.int32(0), RecordFault(1) - 1, False])
def test_integers_of_other_types_are_integers(number: int) -> None:
    """Integers of numpy, of enumerations and truth values are, too."""
    assert engine("compiled", kernels.walk_records)(b"", number, 0, 0, kernels.int64s(7)) == 0


@both_engines
@pytest.mark.parametrize(
    ("position", "limit"),
    [(-1, 5), (5, -1), (5, 4), (0, 41), (41, 41), (-(2**63), 0), (0, 2**63 - 1), (2**62, 2**62)],
)
def test_a_range_outside_of_the_buffer_is_refused(
    engine_name: str, position: int, limit: int
) -> None:
    """It is told before any byte is read."""
    data = memoryview(bytes(40))
    for kernel in (records.record_at, records.varint_at):
        with pytest.raises(IndexError, match="of 40 bytes"):
            engine(engine_name, kernel)(data, position, limit)
    totals = kernels.int64s(len(Total))
    status = engine(engine_name, kernels.walk_records)(data, position, limit, 0, totals)
    assert (status, totals[Total.RECORDS]) == (-RecordFault.RECORD_COUNT, 0)
    for count in (1, 2**62):
        walk = engine(engine_name, kernels.find_timestamp)
        status = walk(data, position, limit, count, 0, 0, 1, 0, 0, kernels.int64s(2))
        assert status == -RecordFault.RECORD_COUNT


@both_engines
@pytest.mark.parametrize("number", [0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31)])
def test_a_varint_is_read_where_it_is(engine_name: str, number: int) -> None:
    """Its number and the position behind it; a byte too few is a fault."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    read = engine(engine_name, records.varint_at)
    for is_at_end in (True, False):
        data = walled(bytes(encoded), is_at_end=is_at_end)
        assert read(data, 0, len(encoded)) == (number, len(encoded))
        assert read(data, 0, len(encoded) - 1) == (0, -RecordFault.TRUNCATED)


@both_engines
def test_the_places_of_a_record_are_those_of_its_bytes(engine_name: str) -> None:
    """They are positions in the whole buffer, wherever the record stands."""
    data = b"before" + PAYLOAD
    found = engine(engine_name, records.record_at)(data, 6, len(data))
    end, time, offset, key_at, key_size, value_at, value_size, headers_at, headers = found
    assert data[6:end] == write_records(RECORDS[:1])
    assert (time, offset, headers) == (0, 0, 1)
    assert data[key_at : key_at + key_size] == b"key"
    assert data[value_at : value_at + value_size] == b"value" * 3
    assert data[headers_at:end] == b"\x02h\x02x"


class Nine(NamedTuple):
    """A record as `take_records` makes it."""

    a: object
    b: object
    c: object
    d: object
    e: object
    f: object
    g: object
    h: object
    i: object


def make_tuples(count: int) -> list[Nine]:
    """So many records of a payload with headers, each with a key and a value of its own."""
    found: list[Nine] = []
    batch = array("q", [0, len(PAYLOAD), len(RECORDS), 1 << 40, 1 << 40, 1, 0, 1 << 20])
    while len(found) < count:
        rows.take_records(
            PAYLOAD, batch, kernels.int64s(3), 0, count - len(found), Nine, ("t", 0), (1, 0), found
        )
    made, _, error = rows.deserialize_records(Nine, found, bytes.decode, list)
    assert error is None
    return made


def make_frames(count: int) -> object:
    """So many frames of records and varints, and as many refusals."""
    for _ in range(count):
        records.record_at(PAYLOAD, 0, len(PAYLOAD))
        records.varint_at(PAYLOAD, 0, len(PAYLOAD))
    return None


def make_refusals(count: int) -> object:
    """So many calls that end with an exception, each at another place."""
    calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (records.record_at, (PAYLOAD, 0, -1)),
        (kernels.walk_records, (PAYLOAD, 0, len(PAYLOAD), 1, array("q"))),
        (kernels.walk_records, (PAYLOAD, 0, len(PAYLOAD), 1, b"")),
        (rows.take_records, (b"x", array("q"), array("q"), 0, 1, Nine, (), (1, 0), (None,))),
        (rows.deserialize_records, (Nine, [Nine(*range(9)), ()], None, None)),
    ]
    for number in range(count):
        call, arguments = calls[number % len(calls)]
        try:
            call(*arguments)
        except (BufferError, IndexError, TypeError, ValueError):
            continue
        raise AssertionError(f"{call} took {arguments}")
    return None


@pytest.mark.parametrize("make", [make_tuples, make_frames, make_refusals])
def test_objects_that_nobody_keeps_leave_no_memory(make: Callable[[int], object]) -> None:
    """The process does not grow over a hundred thousand of them, once it has made some."""
    unit = 1 if sys.platform == "darwin" else 1024
    make(20_000)
    gc.collect()
    blocks, most = sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        make(20_000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 1000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) * unit < 8 << 20


def batch_of(payload: bytes, count: int) -> bytes:
    """A whole batch of LogAppendTime around a payload."""
    size = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    return HEADER.pack(0, size, 0, 2, 0, 8, count - 1, 0, 0, -1, -1, -1, count) + payload


def test_threads_call_kernels_at_once() -> None:
    """Each gets the results of its own buffers, with and without the interpreter lock."""
    wrong: list[object] = []
    data = batch_of(PAYLOAD, len(RECORDS)) * 20

    def run(number: int) -> None:
        count = number % len(RECORDS) + 1
        payload = write_records(RECORDS[:count])
        for _ in range(300):
            totals = kernels.int64s(len(Total))
            walked = kernels.walk_records(payload, 0, len(payload), count, totals)
            sound = kernels.walk_run(data, 20 * len(RECORDS))
            made = make_tuples(count)
            if (
                (walked, sound, totals[Total.RECORDS]) != (0, 1, count)
                or [each.c for each in made] != [(1 << 40) + place for place in range(count)]
                or any((each.f, each.g) != ("key", [*b"value" * 3]) for each in made)
            ):
                wrong.append((number, walked, sound, list(totals)))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_the_oracle_computes_with_integers_of_python() -> None:
    """Nothing of numpy wraps around in it."""
    view = as_plain(np.array([2**63 - 1], np.int64))
    assert view[0] + 1 == 2**63
    assert type(as_plain(np.int32(3))) is int


def test_a_second_interpreter_of_a_process_is_refused() -> None:
    """The import there fails with words, and the first interpreter goes on."""
    code = """
import sys, tailrace.kernels
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
second = interpreters.create()
code = f"import sys; sys.path = {sys.path}; import tailrace.kernels"
try:
    failed = interpreters.run_string(second, code)
except Exception as error:
    failed = error
print(failed, tailrace.kernels.int64s(1))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "interpreter" in done.stdout
    assert "array('q', [0])" in done.stdout
