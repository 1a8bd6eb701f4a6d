"""`Rules`: the entries of all access control lists, as an index by what a request asks.

    kind of resource ─► literal name ─┐
                        prefix ───────┴─► (principal, host) ─► allowed, denied: bits of operations

A question looks at the literal name, at `*`, and at each length that a prefix has: some dictionary
look-ups, however many entries there are. What an operation implies is in the bits already.

Not here: super users, and what counts where there are no entries (`authorizer`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.security.acls import (
    ANY_NAME,
    ANY_PRINCIPAL,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import AccessControlEntryRecord

_ALL_BITS: Final = -1
# Only what is allowed implies more: who may not READ may still DESCRIBE.
_DESCRIBE: Final = 1 << AclOperation.DESCRIBE
_IMPLIED: Final[Mapping[int, int]] = {
    AclOperation.READ: _DESCRIBE,
    AclOperation.WRITE: _DESCRIBE,
    AclOperation.DELETE: _DESCRIBE,
    AclOperation.ALTER: _DESCRIBE,
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}


class Verdict(NamedTuple):
    """The answer of the entries to one question."""

    is_allowed: bool
    has_entries: bool
    """Whether the resource has any entries, of whichever principal; without any, it is denied
    here."""
    pattern: tuple[PatternType, str] | None = None
    """The pattern whose entry has decided, if one has."""


class _Cell:
    """The rights of one principal from one host, with the names of one pattern."""

    __slots__ = ("allowed", "counts", "denied")

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int]] = Counter()
        """Entries by operation and permission: a log may have the same one under two ids."""
        self.allowed = self.denied = 0

    def change(self, entry: "AccessControlEntryRecord", by: int) -> None:
        key = (entry.operation, entry.permission_type)
        self.counts[key] += by
        if not self.counts[key]:
            del self.counts[key]
        self.allowed = self.denied = 0
        for operation, permission in self.counts:
            if permission == Permission.DENY:
                self.denied |= _bits(operation)
            elif permission == Permission.ALLOW:
                self.allowed |= _bits(operation) | _IMPLIED.get(operation, 0)


def _bits(operation: int) -> int:
    return _ALL_BITS if operation == AclOperation.ALL else 1 << operation


_Cells = dict[tuple[str, str], _Cell]


class _Names:
    """The patterns of one kind of resource."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Cells] = {}
        self.prefixed: dict[str, _Cells] = {}
        self.lengths: dict[int, int] = {}
        """The count of prefixes by their length, for each length that one has."""

    def cells(self, name: str) -> Iterator[tuple[PatternType, str, _Cells]]:
        """The patterns that cover a name."""
        for literal in (name, ANY_NAME):
            found = self.literal.get(literal)
            if found is not None:
                yield PatternType.LITERAL, literal, found
        for length in self.lengths:
            if length <= len(name):
                found = self.prefixed.get(name[:length])
                if found is not None:
                    yield PatternType.PREFIXED, name[:length], found


class Rules:
    """The index; one writer, and readers in the same turn of the loop."""

    def __init__(self, entries: Iterable["AccessControlEntryRecord"] = ()) -> None:
        self._names: dict[int, _Names] = {}
        for each in entries:
            self.add(each)

    def add(self, entry: "AccessControlEntryRecord") -> None:
        """Have an entry count."""
        names = self._names.setdefault(entry.resource_type, _Names())
        is_prefix = entry.pattern_type == PatternType.PREFIXED
        patterns = names.prefixed if is_prefix else names.literal
        cells = patterns.get(entry.resource_name)
        if cells is None:
            cells = patterns[entry.resource_name] = {}
            if is_prefix:
                length = len(entry.resource_name)
                names.lengths[length] = names.lengths.get(length, 0) + 1
        cells.setdefault((entry.principal, entry.host), _Cell()).change(entry, 1)

    def remove(self, entry: "AccessControlEntryRecord") -> None:
        """Have an entry that was added count no more."""
        names = self._names[entry.resource_type]
        is_prefix = entry.pattern_type == PatternType.PREFIXED
        patterns = names.prefixed if is_prefix else names.literal
        cells = patterns[entry.resource_name]
        cell = cells[entry.principal, entry.host]
        cell.change(entry, -1)
        if cell.counts:
            return
        del cells[entry.principal, entry.host]
        if cells:
            return
        # Names without entries may be allowed to everyone, so none may stay.
        del patterns[entry.resource_name]
        if is_prefix:
            length = len(entry.resource_name)
            names.lengths[length] -= 1
            if not names.lengths[length]:
                del names.lengths[length]

    def verdict(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        *,
        resource: AclResource,
        name: str,
    ) -> Verdict:
        """Whether the entries allow it: any that denies wins, then any that allows."""
        names = self._names.get(resource)
        if names is None:
            return Verdict(is_allowed=False, has_entries=False)
        bit, has_entries, allowing = 1 << operation, False, None
        who = _who(principal, host)
        for kind, text, cells in names.cells(name):
            has_entries = True
            for each in who:
                cell = cells.get(each)
                if cell is None:
                    continue
                if cell.denied & bit:
                    return Verdict(is_allowed=False, has_entries=True, pattern=(kind, text))
                if cell.allowed & bit:
                    allowing = (kind, text)
        return Verdict(allowing is not None, has_entries, allowing)

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, *, resource: AclResource
    ) -> bool:
        """Whether the entries allow it with some name (Kafka's `authorizeByResourceType`).

        As in Kafka nothing is implied here, and an entry that allows a name or a prefix counts
        unless a denied prefix covers it, or the same literal name is denied, or `*` is.
        """
        names = self._names.get(resource)
        if names is None:
            return False
        who = _who(principal, host)

        def has(cells: _Cells, permission: Permission) -> bool:
            for each in who:
                cell = cells.get(each)
                if cell is not None and (
                    (operation, permission) in cell.counts
                    or (AclOperation.ALL, permission) in cell.counts
                ):
                    return True
            return False

        every = names.literal.get(ANY_NAME, {})
        if has(every, Permission.DENY):
            return False
        if has(every, Permission.ALLOW):
            return True
        denied = {each for each, cells in names.prefixed.items() if has(cells, Permission.DENY)}

        def is_covered(name: str) -> bool:
            lengths = (length for length in names.lengths if length <= len(name))
            return bool(denied) and any(name[:length] in denied for length in lengths)

        for is_literal, patterns in ((True, names.literal), (False, names.prefixed)):
            for name, cells in patterns.items():
                if (
                    has(cells, Permission.ALLOW)
                    and not (is_literal and has(cells, Permission.DENY))
                    and not is_covered(name)
                ):
                    return True
        return False


def _who(principal: str, host: str) -> tuple[tuple[str, str], ...]:
    return (
        (principal, host),
        (principal, ANY_NAME),
        (ANY_PRINCIPAL, host),
        (ANY_PRINCIPAL, ANY_NAME),
    )
