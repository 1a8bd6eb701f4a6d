"""`measure_shape`: what a parsed Avro schema lets few bytes become.

Some schemas make large values of few bytes. An array of nulls, which has any number of items in two
bytes, is refused. Records of records of nulls double with each level: their fields are counted. A
record within itself may go as deep as its bytes reach: it is reported, so that a reader can choose
a decoder that ends with an error and not with the process.
"""

from collections.abc import Mapping
from typing import Any, Final

from tailrace.schemas.errors import SchemaError
from tailrace.values import dataclass

DEPTH_MAX: Final = 200
"""Most types within each other, those that names refer to included."""

# The only primitive type whose values take no bytes in Avro.
_EMPTY: Final = frozenset({"null"})
_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroShape:
    """Limits of the values of a schema."""

    is_recursive: bool
    """Whether a record can be within itself."""
    has_int: bool
    """Whether there is an int, whose range fastavro's writer does not check."""
    free_values: int
    """Most values that one byte can become, besides itself: nulls and empty types."""


@dataclass(slots=True)
class _Part:
    """A type within a schema."""

    size_min: int
    """Fewest bytes of a value, counted up to 1."""
    free: int
    """Values without bytes of their own, up to the next union, array or map."""


def measure_shape(schema: object, named: Mapping[str, Any]) -> AvroShape:
    """The shape of a schema that fastavro has parsed, with the types that it names.

    Raises:
        SchemaError: it is deeper than `DEPTH_MAX`, has an array of items without bytes, or a record
            that always contains itself.
    """
    walk = _Walk(named)
    part = walk.part(schema, 0)
    return AvroShape(
        is_recursive=walk.is_recursive,
        has_int=walk.has_int,
        free_values=max(part.free, walk.free_within),
    )


class _Walk:
    """One pass over the types of a schema; each named type is looked at once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.is_recursive = self.has_int = False
        self.free_within = 0
        """Most free values of a branch, an item, or a value of a map."""
        self._named = named
        self._done: dict[str, tuple[_Part, int]] = {}
        """Parts of the named types, and how deep each is."""
        self._open: dict[str, int] = {}
        """Records that the type is within, and how many choices lead to each."""
        self._choices = 0
        """Unions, arrays and maps that the type is within."""
        self._deepest = 0

    def part(self, schema: object, depth: int) -> _Part:
        """The part of a type that is so deep."""
        if depth > DEPTH_MAX:
            raise SchemaError(f"the schema has more than {DEPTH_MAX} types within each other")
        self._deepest = max(self._deepest, depth)
        match schema:
            case str():
                return self._by_name(schema, depth)
            # Avro forbids a union directly within a union. A union has the index of its branch and
            # an array or a map the 0 that ends it, so each takes at least a byte, however empty the
            # values within.
            case list() if schema and not any(isinstance(each, list) for each in schema):
                for branch in schema:
                    self._within(branch, depth)
                return _Part(1, 0)
            case {"type": "array", "items": items}:
                # fastavro believes the count of a block: an array of nulls with a count of 2^62
                # fits in ten bytes.
                if not self._within(items, depth).size_min:
                    raise SchemaError(
                        "the schema has an array whose items take no bytes, so a few bytes could "
                        "claim any number of them"
                    )
                return _Part(1, 0)
            case {"type": "map", "values": values}:
                self._within(values, depth)
                return _Part(1, 0)
            case {"type": "fixed", "size": int(size)}:
                # Avro allows a fixed of size 0, which is as free as a null.
                return _Part(min(size, 1), int(not size))
            case {"type": "enum"}:
                return _Part(1, 0)
            case {"type": "record" | "error", "name": str(name)}:
                return self._by_name(name, depth)
            case {"type": inner}:
                return self.part(inner, depth + 1)
            case _:
                raise SchemaError(f"the schema has an unknown type: {str(schema)[:80]!r}")

    def _within(self, schema: object, depth: int) -> _Part:
        self._choices += 1
        part = self.part(schema, depth + 1)
        self._choices -= 1
        self.free_within = max(self.free_within, part.free)
        return part

    def _by_name(self, name: str, depth: int) -> _Part:
        self.has_int = self.has_int or name == "int"
        if name in _PRIMITIVES:
            return _Part(int(name not in _EMPTY), int(name in _EMPTY))
        if name in self._open:
            # No union, array or map lies between the record and itself, so no value of it could
            # ever end. fastavro takes such a schema, and its reader recurses until the stack ends.
            if self._open[name] == self._choices:
                raise SchemaError(f"the record {name} always contains itself")
            self.is_recursive = True
            # The choice that leads back to the record takes a byte in each of its values.
            return _Part(1, 0)
        # A type that is used twice by each of thirty records would otherwise be walked 2^30 times.
        known = self._done.get(name)
        if known is not None:
            part, height = known
            if depth + height > DEPTH_MAX:
                raise SchemaError(f"the schema has more than {DEPTH_MAX} types within each other")
            self._deepest = max(self._deepest, depth + height)
            return part
        found = self._named.get(name)
        if not isinstance(found, dict):
            raise SchemaError(f"the schema names {name!r}, which it does not have")
        if found.get("type") not in {"record", "error"}:
            return self.part(found, depth + 1)
        if not isinstance(found.get("fields"), list):
            raise SchemaError(f"the record {name} has no list of fields")
        deepest, self._deepest = self._deepest, depth
        self._open[name] = self._choices
        fields = [self.part(each.get("type"), depth + 1) for each in found["fields"]]
        del self._open[name]
        part = _Part(
            min(sum(each.size_min for each in fields), 1),
            # A record without fields becomes a dictionary all the same.
            sum(each.free for each in fields) + (not fields),
        )
        self._done[name] = part, self._deepest - depth
        self._deepest = max(self._deepest, deepest)
        return part
