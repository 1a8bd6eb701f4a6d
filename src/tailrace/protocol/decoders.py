"""Generate the source of decode functions from the fields of a message.

For `MetadataRequest` v9 the result reads like hand-written code:

    def decode(view, position, parts):
        end = len(view)
        try:
            count = view[position] - 1; position += 1
            parts -= count
            if parts < 0: ...
            for _ in range(count):
                ...
            request = new(MetadataRequest)
            set_topics(request, topics)
            return request, position
        except (IndexError, StructError): ...

Neighbouring fields of fixed size are read by one `struct` call. Nested classes are decoded inline,
so a message costs one Python call and one object per struct.

`codec` caches the functions; `encoders` has the other direction.

Invariant: the source comes only from our own declarations, never from bytes of a peer. Each length
or count is compared with the remaining bytes before the value is created, and the elements of all
arrays together with `parts`, which the caller gives.
"""

from struct import Struct, error, unpack_from
from typing import Any, NoReturn

from tailrace.protocol.errors import MalformedMessageError, TooManyPartsError
from tailrace.protocol.fields import WireField, fields_in, tagged_fields_in, wire_fields
from tailrace.protocol.primitives import (
    UNLIMITED_PARTS,
    MessageDecoder,
    TagDecoder,
    read_tagged,
    read_uvarint,
    uuid_from,
)

STRING_BYTES_MAX = 32_767
"""Longest string in bytes: the maximum of an int16 length, also for compact strings in Kafka."""

FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q",
    "float64": "d", "uuid": "16s",
}  # fmt: skip
"""Primitives of fixed size, as `struct` writes them."""


def _refuse_length(path: str, length: int, *, position: int, end: int) -> NoReturn:
    raise MalformedMessageError(
        f"{path} claims {length} bytes, {end - position} remain", position=position
    )


def _refuse_string(path: str, length: int, position: int) -> NoReturn:
    raise MalformedMessageError(
        f"{path} claims {length} bytes, a string has at most {STRING_BYTES_MAX}", position=position
    )


def _refuse_count(path: str, count: int, *, position: int, end: int) -> NoReturn:
    raise MalformedMessageError(
        f"{path} claims {count} entries, {end - position} bytes remain", position=position
    )


def _refuse_parts(path: str, count: int, position: int) -> NoReturn:
    raise TooManyPartsError(
        f"{path} claims {count} entries, more than a message of this kind may still have",
        position=position,
    )


def _refuse_null(path: str, position: int) -> NoReturn:
    raise MalformedMessageError(f"{path} is null, which it may not be", position=position)


def _refuse_end(path: str, position: int, end: int) -> NoReturn:
    raise MalformedMessageError(
        f"{path} ends early: the field needs more than the {end} bytes that are there",
        position=position,
    )


def _refuse_text(path: str, position: int) -> NoReturn:
    raise MalformedMessageError(f"{path} has a string that is not UTF-8", position=position)


def smallest_size(kind: str | type, *, version: int, is_flexible: bool) -> int:
    """Bytes that the shortest value of this wire type takes; at least 1."""
    if isinstance(kind, type):
        fields = fields_in(kind, version)
        # A struct that ends up at 0 bytes counts as 1, or a count could be any number.
        sizes = [_smallest(f, version=version, is_flexible=is_flexible) for f in fields]
        return max(sum(sizes) + is_flexible, 1)
    if kind in FIXED:
        return Struct(">" + FIXED[kind]).size
    if is_flexible:
        return 1
    return 2 if kind == "string" else 4


def _smallest(field: WireField, *, version: int, is_flexible: bool) -> int:
    if field.is_array:
        return 1 if is_flexible else 4
    # Null is one byte for a struct: an int8 of -1 (or a count of 0 in a tagged field).
    if isinstance(field.type, type) and field.is_nullable(version):
        return 1
    return smallest_size(field.type, version=version, is_flexible=is_flexible)


class DecoderSource:
    """Generates the source of one decode function."""

    def __init__(self, path: str, *, version: int, is_flexible: bool) -> None:
        self._path = path
        self._version = version
        self._is_flexible = is_flexible
        self._lines: list[str] = []
        self._indent = 2
        self._fresh = 0
        self._names: dict[str, Any] = {
            "StructError": error,
            "array_from": unpack_from,
            "new": object.__new__,
            "read_tagged": read_tagged,
            "read_uvarint": read_uvarint,
            "refuse_count": _refuse_count,
            "refuse_end": _refuse_end,
            "refuse_length": _refuse_length,
            "refuse_null": _refuse_null,
            "refuse_parts": _refuse_parts,
            "refuse_string": _refuse_string,
            "refuse_text": _refuse_text,
            "uuid_from": uuid_from,
            "uuids_in": Struct("16s").iter_unpack,
        }

    def of_message(self, message: type) -> MessageDecoder:
        """The function that decodes a whole message."""
        result = self._struct(message, self._path)
        decode: MessageDecoder = self._compile(result, arguments="view, position, parts")
        return decode

    def of_field(self, field: WireField) -> TagDecoder:
        """The function that decodes the value of one tagged field."""
        # Only responses, records and heartbeats of brokers have arrays in tagged fields, and these
        # have no limit: their elements are addresses, ids and epochs, which take some ten times the
        # bytes that they are read from, and a record is no larger than its batch.
        self._line(f"parts = {UNLIMITED_PARTS}")
        if not field.is_array and field.type in FIXED:
            result = self._fixed([field])[0]
        elif field.is_struct and field.is_nullable(self._version):
            is_there = self._new("n")
            self._line(f"{is_there}, position = read_uvarint(view, position)")
            result = self._struct_or_none(field, self._path, is_there)
        else:
            result = self._value(field, self._path)
        decode: TagDecoder = self._compile(result)
        return decode

    def _compile(self, result: str, *, arguments: str = "view, position") -> Any:  # noqa: ANN401
        body = "\n".join(self._lines)
        # One check for all fields: a check before each would cost more than the reading.
        source = (
            f"def decode({arguments}):\n    end = len(view)\n    try:\n"
            f"{body}\n        return {result}, position\n"
            "    except (IndexError, StructError):\n"
            f"        refuse_end({self._path!r}, position, end)\n"
            "    except UnicodeDecodeError:\n"
            f"        refuse_text({self._path!r}, position)\n"
        )
        # Dataclasses do the same: the text comes from our declarations, never from a peer.
        exec(compile(source, f"<decode {self._path}>", "exec"), self._names)  # noqa: S102
        return self._names["decode"]

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _new(self, stem: str) -> str:
        self._fresh += 1
        return f"{stem}_{self._fresh}"

    def _constant(self, stem: str, value: object) -> str:
        name = self._new(stem)
        self._names[name] = value
        return name

    def _struct(self, message: type, path: str) -> str:
        """Generate the code that reads a struct; returns its variable."""
        values: dict[str, str] = {}
        run: list[WireField] = []
        for field in fields_in(message, self._version):
            # Neighbours of fixed size become one call of `struct`, which is most of what decoding
            # costs.
            if not field.is_array and field.type in FIXED:
                run.append(field)
                continue
            values.update(zip((f.name for f in run), self._fixed(run), strict=True))
            run = []
            values[field.name] = self._value(field, f"{path}.{field.name}")
        values.update(zip((f.name for f in run), self._fixed(run), strict=True))
        if self._is_flexible:
            values.update(self._tags(message, path))
        return self._build(message, values)

    def _build(self, message: type, values: dict[str, str]) -> str:
        """Generate the code that creates a struct from expressions; returns its variable.

        It sets the slots directly: a call of `__init__` by keywords takes half as long again (1.2
        and 0.8 us for a partition of Fetch), which is most of a decode.
        """
        target = self._new("struct")
        self._line(f"{target} = new({self._constant(message.__name__, message)})")
        for field in wire_fields(message):
            value = values.get(field.name) or self._constant("default", field.default)
            setter = self._constant("set", getattr(message, field.name).__set__)
            self._line(f"{setter}({target}, {value})")
        return target

    def _fixed(self, run: list[WireField]) -> list[str]:
        """Generate one read for neighbouring fields of fixed size; returns their expressions."""
        if not run:
            return []
        layout = Struct(">" + "".join(FIXED[str(field.type)] for field in run))
        unpack = self._constant("unpack", layout.unpack_from)
        names = [self._new(field.name) for field in run]
        self._line(f"{', '.join(names)}, = {unpack}(view, position)")
        self._line(f"position += {layout.size}")
        return [
            f"uuid_from({name})" if field.type == "uuid" else name
            for field, name in zip(run, names, strict=True)
        ]

    def _tags(self, message: type, path: str) -> dict[str, str]:
        """Generate the code that reads a tag section; returns the expressions of known fields."""
        tagged = tagged_fields_in(message, self._version)
        decoders = {
            field.tag: DecoderSource(
                f"{path}.{field.name}", version=self._version, is_flexible=True
            ).of_field(field)
            for field in tagged
        }
        names = {field.name: self._new(field.name) for field in tagged}
        for field in tagged:
            self._line(f"{names[field.name]} = {self._constant('default', field.default)}")
        # Nearly all sections are empty, one 0 byte, which is not worth a call.
        self._line("if view[position]:")
        table = self._constant("tags", decoders)
        self._line(f"    tagged, position = read_tagged(view, position, {table})")
        for field in tagged:
            name = names[field.name]
            self._line(f"    {name} = tagged.get({field.tag}, {name})")
        self._line("else:")
        self._line("    position += 1")
        return names

    def _value(self, field: WireField, path: str) -> str:
        """Generate the code that reads an array, string or struct; returns its variable."""
        if field.is_array:
            return self._array(field, path)
        if isinstance(field.type, type):
            if not field.is_nullable(self._version):
                return self._struct(field.type, path)
            self._line("position += 1")
            # An int8: -1 for null, 1 for a struct.
            return self._struct_or_none(field, path, "view[position - 1] < 128")
        return self._string(path, field.type, is_nullable=field.is_nullable(self._version))

    def _struct_or_none(self, field: WireField, path: str, is_there: str) -> str:
        """Generate the code that reads a struct if `is_there`; returns its variable."""
        assert isinstance(field.type, type)
        target = self._new("v")
        self._line(f"{target} = None")
        self._line(f"if {is_there}:")
        self._indent += 1
        self._line(f"{target} = {self._struct(field.type, path)}")
        self._indent -= 1
        return target

    def _length(self, *, width: int) -> str:
        """Generate the code that reads a length; returns its variable. Negative means null."""
        name = self._new("n")
        if self._is_flexible:
            self._line(f"{name} = view[position] - 1")
            self._line("position += 1")
            # A compact length is one more than the value and mostly one byte; only longer ones need
            # the call.
            self._line(f"if {name} > 126:")
            self._line(f"    {name}, position = read_uvarint(view, position - 1)")
            self._line(f"    {name} -= 1")
        else:
            layout = Struct(">h" if width == 2 else ">i")
            unpack = self._constant("unpack", layout.unpack_from)
            self._line(f"{name}, = {unpack}(view, position)")
            self._line(f"position += {width}")
        return name

    def _null(self, length: str, target: str, path: str, *, is_nullable: bool) -> None:
        self._line(f"if {length} < 0:")
        if is_nullable:
            self._line(f"    {target} = None")
        else:
            self._line(f"    refuse_null({path!r}, position)")
        self._line("else:")

    def _string(self, path: str, kind: str, *, is_nullable: bool) -> str:
        length = self._length(width=2 if kind == "string" else 4)
        target = self._new("v")
        self._null(length, target, path, is_nullable=is_nullable)
        self._line(f"    stop = position + {length}")
        self._line("    if stop > end:")
        self._line(f"        refuse_length({path!r}, {length}, position=position, end=end)")
        if kind == "string":
            # An int16 length cannot be longer, a compact one can; Kafka refuses it as well.
            if self._is_flexible:
                self._line(f"    if {length} > {STRING_BYTES_MAX}:")
                self._line(f"        refuse_string({path!r}, {length}, position)")
            self._line(f"    {target} = str(view[position:stop], 'utf-8')")
        elif kind == "bytes":
            # A copy: metadata that is kept must not keep the whole frame in memory.
            self._line(f"    {target} = bytes(view[position:stop])")
        else:
            self._line(f"    {target} = view[position:stop]")
        self._line("    position = stop")
        return target

    def _array(self, field: WireField, path: str) -> str:
        kind = field.type
        count = self._length(width=4)
        target = self._new("v")
        smallest = smallest_size(kind, version=self._version, is_flexible=self._is_flexible)
        self._null(count, target, path, is_nullable=field.is_nullable(self._version))
        self._indent += 1
        # Before the list is made: a count of 2^31 in four bytes must not become memory.
        self._line(f"if {count} * {smallest} > end - position:")
        self._line(f"    refuse_count({path!r}, {count}, position=position, end=end)")
        numbers = FIXED.get(kind) if isinstance(kind, str) else None
        # Numbers count too: they take little memory, but may be partitions that need an answer.
        self._line(f"parts -= {count}")
        self._line("if parts < 0:")
        self._line(f"    refuse_parts({path!r}, {count}, position)")
        if kind == "uuid":
            self._line(f"stop = position + {count} * 16")
            self._line(f"{target} = tuple([uuid_from(x) for x, in uuids_in(view[position:stop])])")
            self._line("position = stop")
        elif numbers:
            self._line(f"{target} = array_from(f'>{{{count}}}{numbers}', view, position)")
            self._line(f"position += {count} * {smallest}")
        else:
            self._line(f"{target} = []")
            self._line(f"for _ in range({count}):")
            self._indent += 1
            if isinstance(kind, type):
                element = self._struct(kind, path)
            else:
                element = self._string(path, kind, is_nullable=False)
            self._line(f"{target}.append({element})")
            self._indent -= 1
            self._line(f"{target} = tuple({target})")
        self._indent -= 1
        return target
