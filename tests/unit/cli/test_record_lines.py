"""Records as lines: kcat's format strings, and what `produce` reads."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.record_text import (
    VALUE_LINE,
    FormatError,
    InputError,
    InputRecord,
    json_record,
    parse_format,
    plain_record,
    read_lines,
    unescape,
)
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.offline.show import ShownRecord, to_json
from tailrace.records.builder import Record
from tests.unit.records.batches import record_at

PLACE = TopicPartition("flights", 3)
RECORD = record_at(12, 1700, b"k\xff", b"v\x1b", (("h", b"x"), ("n", None)))


def shown(form: str, record: Record = RECORD, *, for_terminal: bool = False) -> bytes:
    """A record of flights-3 in a format."""
    return parse_format(form, for_terminal=for_terminal)(PLACE, record)


def test_every_field_of_kcat_is_shown() -> None:
    """Keys and values are byte for byte what was sent."""
    assert shown(r"%t-%p@%o %T %k=%s %K %S %h %%\n\x41") == (
        b"flights-3@12 1700 k\xff=v\x1b 2 2 h=x,n= %\nA"
    )
    assert shown("%R") == b"\0\0\0\2"
    assert shown(VALUE_LINE) == b"v\x1b\n"


def test_null_has_no_text_and_the_size_minus_one() -> None:
    """So it differs from an empty value."""
    nothing = record_at(0, 0, None, None, ())
    assert shown("[%k|%s] %K %S %R", nothing) == b"[|] -1 -1 \xff\xff\xff\xff"


def test_a_terminal_is_given_no_orders() -> None:
    """Control characters are escaped, and bytes that are no text are hexadecimal digits."""
    assert shown("%k %s", for_terminal=True) == b"0x6bff v\\x1b"


@pytest.mark.parametrize("form", ["%x", "%", r"\q", "\\", r"\x4"])
def test_a_format_that_means_nothing_is_refused(form: str) -> None:
    """The error lists what there is."""
    with pytest.raises(FormatError, match=r"is not an escape|is not a format token"):
        shown(form)


@given(st.binary(max_size=60), st.integers(1, 7), st.sampled_from([b"\n", b"ab", b"aab"]))
def test_lines_do_not_depend_on_how_they_arrive(data: bytes, step: int, delimiter: bytes) -> None:
    """Any chunks give the pieces that a split of the whole gives."""

    class Slow(io.BytesIO):
        def read1(self, _: int | None = -1, /) -> bytes:
            return self.read(step)

    expected = data.split(delimiter)
    if not expected[-1]:
        expected.pop()
    assert [*read_lines(Slow(data), delimiter, size_max=100)] == expected


def test_a_line_without_an_end_is_refused_in_bounded_memory() -> None:
    """Not all of an endless input is read."""
    endless = io.BytesIO(b"x" * 1_000_000)
    with pytest.raises(FatalError, match=r"more than 1000 bytes.*max\.request\.size"):
        next(read_lines(endless, b"\n", size_max=1000))
    assert endless.tell() < 200_000


def test_a_key_ends_at_the_first_separator() -> None:
    """A line without one is a value."""
    assert plain_record(b"k:v:w", b":") == InputRecord(b"k", b"v:w")
    assert plain_record(b"v", b":") == InputRecord(None, b"v")
    assert plain_record(b"k:v", b"") == InputRecord(None, b"k:v")


def test_escapes_of_a_delimiter_are_read() -> None:
    """Any byte can be given."""
    assert unescape(r"\t\0\\\x1e-\n") == b"\t\0\\\x1e-\n"


@given(
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=9),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
    st.integers(-(1 << 50), 1 << 50),
)
def test_objects_that_are_printed_can_be_sent_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], time: int
) -> None:
    """The output of `consume --json` is input of `produce --json`, for any bytes."""
    record = record_at(0, time, key, value, tuple(headers))
    line = to_json(ShownRecord(PLACE, record, is_control=False)).encode()
    assert json_record(line, 1) == InputRecord(key, value, tuple(headers), time)


def test_headers_may_be_an_object() -> None:
    """It is easier to write by hand."""
    assert json_record(b'{"headers": {"a": "b"}}', 1).headers == (("a", b"b"),)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "expected a JSON object, found an int"),
        ('{"value": 7}', "value is an int; give a string, null or"),
        ('{"key": {"hex": "0g"}}', "key: '0g' is not hexadecimal"),
        ('{"key": {"hex": "00", "more": 1}}', "key is a dict"),
        ('{"headers": [["a"]]}', "headers is not a list of pairs"),
        ('{"timestamp": "now"}', "timestamp is not an integer; give milliseconds"),
        ('{"partition": -1}', "--keep-partitions needs a partition number"),
        ("{}", "--keep-partitions needs a partition number"),
        (json.dumps({"value": "\ud800"}), "value is not valid Unicode"),
    ],
)
def test_a_line_that_is_no_record_is_told_with_its_number(line: str, rule: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(InputError) as raised:
        json_record(line.encode(), 17, keeps_partition="partition" in rule)
    assert str(raised.value).startswith(f"line 17: {rule}")
