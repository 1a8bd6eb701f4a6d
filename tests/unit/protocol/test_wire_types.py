"""Wire types by their bytes, in a message of this test: some are in no generated message yet."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.protocol import codec
from tailrace.protocol.errors import MalformedMessageError, UnencodableMessageError
from tailrace.protocol.fields import NO_UUID, wire, wire_array
from tailrace.values import dataclass

ID = UUID("a829d7bb-f68b-4b3b-a7cc-9af2da2f3df4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A struct."""

    number: int = wire("int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Not flexible in version 0, flexible in version 1, and two fields more in version 2."""

    first_version, last_version, flexible_since = 0, 2, 1
    port: int = wire("uint16", until=1)
    share: float = wire("float64", until=1)
    data: bytes | None = wire("bytes", until=1, nullable_since=0)
    ids: tuple[UUID, ...] | None = wire_array("uuid", until=1, nullable_since=0, default=None)
    parts: tuple[bytes, ...] = wire_array("bytes", until=1)
    ports: tuple[int, ...] = wire_array("uint16", until=1)
    inner: Inner | None = wire(Inner, until=1, nullable_since=0, default=None)
    tagged: Inner | None = wire(Inner, since=2, nullable_since=2, tag=0)
    absent: Inner | None = wire(Inner, since=2, nullable_since=2, tag=1, default=None)
    names: tuple[UUID, ...] = wire_array("uuid", since=2, tag=2)


FULL = Values(
    port=65_535, share=-1.5, data=b"ab", ids=(ID, NO_UUID), parts=(b"", b"c"), ports=(1, 40_000),
    inner=Inner(number=-2),
)  # fmt: skip
NULLS = Values(data=None, ids=None, inner=None)

VECTORS = [
    (
        FULL,
        0,
        ("ffff bff8000000000000 00000002 6162 "
        f"00000002 {ID.hex} {NO_UUID.hex} 00000002 00000000 00000001 63 00000002 0001 9c40 01 fe"),
    ),
    (
        FULL,
        1,
        (f"ffff bff8000000000000 03 6162 03 {ID.hex} {NO_UUID.hex} 03 01 02 63 03 0001 9c40 "
        "01 fe 00 00"),
    ),
    (NULLS, 0, "0000 0000000000000000 ffffffff ffffffff 00000000 00000000 ff"),
    (NULLS, 1, "0000 0000000000000000 00 00 01 01 ff 00"),
    (Values(), 2, "00"),
    (Values(tagged=None), 2, "01 00 01 00"),
    (Values(absent=Inner(number=5)), 2, "01 01 03 01 05 00"),
    (
        Values(tagged=Inner(number=1), names=(ID,)),
        2,
        f"02 00 03 01 01 00 02 11 02 {ID.hex}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("values", "version", "data"), VECTORS)
def test_values_have_these_bytes(values: Values, version: int, data: str) -> None:
    """They are written, gathered and read alike, and no prefix of them is read."""
    whole = bytes.fromhex(data)
    out = bytearray()
    codec.encode(values, version, out)
    assert out.hex() == whole.hex()
    buffers: Any = codec.gather(values, version, bytearray())
    assert b"".join(buffers) == whole
    assert codec.decode(Values, version, memoryview(whole)) == (values, len(whole))
    for size in range(len(whole)):
        with pytest.raises(MalformedMessageError):
            codec.decode(Values, version, memoryview(whole)[:size])


def test_bytes_are_a_copy() -> None:
    """They may be kept when the frame is gone or written over."""
    out = bytearray()
    codec.encode(FULL, 1, out)
    found, _ = codec.decode(Values, 1, memoryview(out))
    out[:] = bytes(len(out))
    assert (found.data, found.parts) == (b"ab", (b"", b"c"))


@pytest.mark.parametrize("values", [Values(port=-1), Values(port=65_536), Values(share="x")])  # type: ignore[arg-type]
def test_a_number_that_does_not_fit_is_refused(values: Values) -> None:
    """A uint16 has no sign, and a float64 is a number."""
    with pytest.raises(UnencodableMessageError):
        codec.encode(values, 0, bytearray())


def test_a_count_of_ids_is_weighed_by_their_size() -> None:
    """Nothing is made for ids that cannot be there."""
    data = bytes.fromhex("0000 0000000000000000 00000000 00000003") + bytes(47)
    with pytest.raises(MalformedMessageError, match="claims 3 entries, 47 bytes remain"):
        codec.decode(Values, 0, memoryview(data))
