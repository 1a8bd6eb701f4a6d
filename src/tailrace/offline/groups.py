"""The records of `__consumer_offsets`: what groups have committed.

    key    int16 version
           0, 1   group string | topic string | partition int32          an offset commit
           2      group string                                           a group and its members
    value  int16 version
      of a commit
           0, 1   offset int64 | metadata string | commit time int64 (| expiry int64 in v1)
           2      offset int64 | metadata string | commit time int64
           3      offset int64 | leader epoch int32 | metadata string | commit time int64
           4      as 3, with a compact string, and tagged fields at the end
      of a group
           0 to 3 protocol type string | generation int32 | ...
           4      protocol type compact string | generation int32 | ...

A string is an int16 size and UTF-8; a compact one has its size plus one as a varint. A null value
is a tombstone. Other versions are not decoded: the caller shows their bytes.
"""

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

Fields = dict[str, object]


class _Fields:
    """Takes fields from the front of some bytes; ValueError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def integer(self, layout: struct.Struct) -> int:
        (number,) = layout.unpack(self._take(layout.size))
        return int(number)

    def string(self, *, is_compact: bool = False) -> str | None:
        size = self._varint() - 1 if is_compact else self.integer(_INT16)
        return None if size < 0 else self._take(size).decode()

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a varint of more than 5 bytes")

    def _take(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if len(data) < size:
            raise ValueError(f"{size} bytes are declared and {len(data)} are left")
        self._position += size
        return data


def decode_group_record(key: bytes | None, value: bytes | None) -> Fields | None:
    """The fields by name, or None where this is no record of a known version."""
    try:
        return _decode(_Fields(key or b""), value)
    except ValueError:
        return None


def _decode(key: _Fields, value: bytes | None) -> Fields | None:
    version = key.integer(_INT16)
    if version in (0, 1):
        fields: Fields = {
            "type": "offset-commit",
            "group": key.string(),
            "topic": key.string(),
            "partition": key.integer(_INT32),
        }
        committed = None if value is None else _commit(_Fields(value))
    elif version == 2:
        fields = {"type": "group", "group": key.string()}
        committed = None if value is None else _group(_Fields(value))
    else:
        return None
    if value is None:
        return {**fields, "tombstone": True}
    return None if committed is None else {**fields, **committed}


def _commit(value: _Fields) -> Fields | None:
    version = value.integer(_INT16)
    if not 0 <= version <= 4:
        return None
    fields: Fields = {"offset": value.integer(_INT64)}
    if version >= 3:
        fields["leader_epoch"] = value.integer(_INT32)
    fields["metadata"] = value.string(is_compact=version >= 4)
    fields["commit_timestamp"] = value.integer(_INT64)
    if version == 1:
        fields["expire_timestamp"] = value.integer(_INT64)
    return fields


def _group(value: _Fields) -> Fields | None:
    version = value.integer(_INT16)
    if not 0 <= version <= 4:
        return None
    return {
        "protocol_type": value.string(is_compact=version >= 4),
        "generation": value.integer(_INT32),
    }
