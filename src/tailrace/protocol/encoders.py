"""Generate the source of encode functions from the fields of a message.

    encode(message, out, buffers)   adds the message to `buffers`: the first one starts with the
                                    bytearray `out`, and `records` are in the list without a copy

So a Fetch response of ten megabytes costs only its headers.

`codec` caches the functions; `decoders` has the other direction.

Invariant: the bytes are those that Kafka writes: a tagged field is written only if it differs from
its default, in ascending order of tags.
"""

from collections.abc import Callable
from struct import Struct, pack
from typing import Any, NoReturn

from tailrace.protocol.decoders import FIXED, STRING_BYTES_MAX
from tailrace.protocol.errors import UnencodableMessageError
from tailrace.protocol.fields import WireField, fields_in, tagged_fields_in
from tailrace.protocol.primitives import write_tagged, write_uvarint

_NULL_LENGTH = {1: b"\x00", 2: b"\xff\xff", 4: b"\xff\xff\xff\xff"}
"""The encoding of null, by the width of the length: 0 for compact, else -1."""


def _refuse_string(length: int) -> NoReturn:
    raise UnencodableMessageError(
        f"a string has {length} bytes; the wire allows {STRING_BYTES_MAX}"
    )


class EncoderSource:
    """Generates the source of one encode function."""

    def __init__(self, path: str, *, version: int, is_flexible: bool) -> None:
        self._path = path
        self._version = version
        self._is_flexible = is_flexible
        self._lines: list[str] = []
        self._indent = 1
        self._fresh = 0
        self._names: dict[str, Any] = {
            "array_of": pack,
            "refuse_string": _refuse_string,
            "write_tagged": write_tagged,
            "write_uvarint": write_uvarint,
        }

    def of_message(self, message: type) -> Callable[..., None]:
        """The function that encodes a whole message."""
        self._struct(message, "message")
        self._line("buffers.append(out)")
        body = "\n".join(self._lines)
        source = f"def encode(message, out, buffers):\n{body}\n"
        # As dataclasses and namedtuple do: the text comes from our declarations, never from a peer.
        exec(compile(source, f"<encode {self._path}>", "exec"), self._names)  # noqa: S102
        function: Callable[..., None] = self._names["encode"]
        return function

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def _new(self, stem: str) -> str:
        self._fresh += 1
        return f"{stem}_{self._fresh}"

    def _constant(self, stem: str, value: object) -> str:
        name = self._new(stem)
        self._names[name] = value
        return name

    def _struct(self, message: type, owner: str, out: str = "out") -> None:
        run: list[WireField] = []
        for field in fields_in(message, self._version):
            if not field.is_array and field.type in FIXED:
                run.append(field)
                continue
            self._fixed(run, owner, out)
            run = []
            self._value(field, f"{owner}.{field.name}", out)
        self._fixed(run, owner, out)
        if self._is_flexible:
            self._tags(message, owner, out)

    def _fixed(self, run: list[WireField], owner: str, out: str) -> None:
        """Generate one append for neighbouring fields of fixed size."""
        if not run:
            return
        layout = Struct(">" + "".join(FIXED[str(field.type)] for field in run))
        values = ", ".join(
            f"{owner}.{field.name}" + (".bytes" if field.type == "uuid" else "") for field in run
        )
        self._line(f"{out} += {self._constant('pack', layout.pack)}({values})")

    def _tags(self, message: type, owner: str, out: str) -> None:
        tagged = tagged_fields_in(message, self._version)
        if not tagged:
            self._line(f"{out}.append(0)")
            return
        section = self._new("tagged")
        # Tags go in rising order, in which `tagged_fields_in` gives them.
        self._line(f"{section} = ()")
        for field in tagged:
            value, part = self._new("v"), self._new("part")
            default = self._constant("default", field.default)
            self._line(f"{value} = {owner}.{field.name}")
            # KIP-482: a tagged field with its default is left out. Identity first, since it is the
            # usual case.
            self._line(f"if {value} is not {default} and {value} != {default}:")
            self._indent += 1
            self._line(f"{part} = bytearray()")
            if not field.is_array and field.type in FIXED:
                layout = Struct(">" + FIXED[str(field.type)])
                packed = value + (".bytes" if field.type == "uuid" else "")
                self._line(f"{part} += {self._constant('pack', layout.pack)}({packed})")
            elif field.is_struct and field.is_nullable(self._version):
                self._struct_or_none(field, value, part, null=b"\x00")
            else:
                self._value(field, value, part)
            self._line(f"{section} += (({field.tag}, {part}),)")
            self._indent -= 1
        self._line(f"if {section}:")
        self._line(f"    write_tagged({out}, {section})")
        self._line("else:")
        self._line(f"    {out}.append(0)")

    def _value(self, field: WireField, source: str, out: str) -> None:
        """Generate the append of an array, a string, bytes, records or a struct."""
        if not field.is_array and isinstance(field.type, type):
            if field.is_nullable(self._version):
                self._struct_or_none(field, source, out, null=b"\xff")
            else:
                self._struct(field.type, source, out)
            return
        value = self._new("v")
        self._line(f"{value} = {source}")
        width = 2 if field.type == "string" and not field.is_array else 4
        is_nullable = field.is_nullable(self._version)
        if is_nullable:
            null = _NULL_LENGTH[1 if self._is_flexible else width]
            self._line(f"if {value} is None:")
            self._line(f"    {out} += {self._constant('null', null)}")
            self._line("else:")
            self._indent += 1
        if field.is_array:
            self._array(field, value, out)
        elif field.type == "records":
            self._records(value, out)
        else:
            self._octets(field.type, value, out)
        if is_nullable:
            self._indent -= 1

    def _struct_or_none(self, field: WireField, source: str, out: str, *, null: bytes) -> None:
        """Generate the append of `null` for None, or else of 1 and the struct."""
        assert isinstance(field.type, type)
        value = self._new("v")
        self._line(f"{value} = {source}")
        self._line(f"if {value} is None:")
        self._line(f"    {out} += {self._constant('null', null)}")
        self._line("else:")
        self._indent += 1
        self._line(f"{out}.append(1)")
        self._struct(field.type, value, out)
        self._indent -= 1

    def _length(self, value: str, out: str, *, width: int) -> None:
        if self._is_flexible:
            size = self._new("n")
            self._line(f"{size} = len({value}) + 1")
            self._line(f"if {size} < 128:")
            self._line(f"    {out}.append({size})")
            self._line("else:")
            self._line(f"    write_uvarint({out}, {size})")
        else:
            layout = Struct(">h" if width == 2 else ">i")
            self._line(f"{out} += {self._constant('pack', layout.pack)}(len({value}))")

    def _octets(self, kind: str | type, value: str, out: str) -> None:
        """Generate the append of a string or of bytes."""
        if kind == "string":
            self._line(f"{value} = {value}.encode()")
            if self._is_flexible:
                self._line(f"if len({value}) > {STRING_BYTES_MAX}:")
                self._line(f"    refuse_string(len({value}))")
        self._length(value, out, width=2 if kind == "string" else 4)
        self._line(f"{out} += {value}")

    def _records(self, value: str, out: str) -> None:
        self._length(value, out, width=4)
        self._line(f"if {value}:")
        self._line(f"    buffers.append({out})")
        self._line(f"    buffers.append({value})")
        self._line(f"    {out} = bytearray()")

    def _array(self, field: WireField, value: str, out: str) -> None:
        kind = field.type
        self._length(value, out, width=4)
        if kind == "uuid":
            self._line(f"{out} += b''.join([each.bytes for each in {value}])")
            return
        if isinstance(kind, str) and kind in FIXED:
            self._line(f"{out} += array_of(f'>{{len({value})}}{FIXED[kind]}', *{value})")
            return
        element = self._new("e")
        self._line(f"for {element} in {value}:")
        self._indent += 1
        if isinstance(kind, type):
            self._struct(kind, element, out)
        else:
            self._octets(kind, element, out)
        self._indent -= 1
