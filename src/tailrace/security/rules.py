"""`Rules`: the entries of all access control lists, as an index by what a request asks.

    kind of resource ─► literal name ─┐
                    │   prefix ───────┴─► (principal, host) ─► allowed, denied: bits of operations
                    └─► (principal, host, operation, permission) ─► patterns

A question about a name looks at the literal name, at `*`, and at each length that a prefix has:
some dictionary look-ups, however many entries there are. What an operation implies is in the bits
already. The other way round, a question about any name looks at the patterns of the client alone.

Not here: super users, and what counts where there are no entries (`authorizer`).
"""

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
_EVERY: Final = (False, ANY_NAME)
"""The literal `*`, as a pattern."""
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
        self.counts: dict[tuple[int, int], int] = {}
        """Entries by operation and permission: a log may have the same one under two ids."""
        self.allowed = self.denied = 0

    def add(self, operation: int, permission: int) -> bool:
        """Count an entry; whether it is the first of its kind."""
        key = (operation, permission)
        count = self.counts.get(key, 0)
        self.counts[key] = count + 1
        if not count:
            self._take(operation, permission)
        return not count

    def remove(self, operation: int, permission: int) -> bool:
        """Count an entry no more; whether it was the last of its kind."""
        key = (operation, permission)
        self.counts[key] -= 1
        if self.counts[key]:
            return False
        del self.counts[key]
        self.allowed = self.denied = 0
        for each in self.counts:
            self._take(*each)
        return True

    def _take(self, operation: int, permission: int) -> None:
        if permission == Permission.DENY:
            self.denied |= _bits(operation)
        elif permission == Permission.ALLOW:
            self.allowed |= _bits(operation) | _IMPLIED.get(operation, 0)


def _bits(operation: int) -> int:
    if operation == AclOperation.ALL:
        return _ALL_BITS
    # Records of the log may have any number; one without a meaning allows and denies nothing.
    return 1 << operation if operation > 0 else 0


_Cells = dict[tuple[str, str], _Cell]
_Pattern = tuple[bool, str]
"""Whether it is a prefix, and the name."""


class _Names:
    """The patterns of one kind of resource."""

    __slots__ = ("lengths", "literal", "patterns", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Cells] = {}
        self.prefixed: dict[str, _Cells] = {}
        self.lengths: dict[int, int] = {}
        """The count of prefixes by their length, for each length that one has."""
        self.patterns: dict[tuple[str, str, int, int], dict[_Pattern, None]] = {}
        """The patterns by principal, host, operation and permission, in the order of the log."""

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
        names = self._names.get(entry.resource_type)
        if names is None:
            names = self._names[entry.resource_type] = _Names()
        name, is_prefix = entry.resource_name, entry.pattern_type == PatternType.PREFIXED
        by_name = names.prefixed if is_prefix else names.literal
        cells = by_name.get(name)
        if cells is None:
            cells = by_name[name] = {}
            if is_prefix:
                names.lengths[len(name)] = names.lengths.get(len(name), 0) + 1
        who = (entry.principal, entry.host)
        cell = cells.get(who)
        if cell is None:
            cell = cells[who] = _Cell()
        operation, permission = entry.operation, entry.permission_type
        if cell.add(operation, permission):
            key = (*who, operation, permission)
            patterns = names.patterns.get(key)
            if patterns is None:
                patterns = names.patterns[key] = {}
            patterns[is_prefix, name] = None

    def remove(self, entry: "AccessControlEntryRecord") -> None:
        """Have an entry that was added count no more."""
        names = self._names[entry.resource_type]
        name, is_prefix = entry.resource_name, entry.pattern_type == PatternType.PREFIXED
        by_name = names.prefixed if is_prefix else names.literal
        cells = by_name[name]
        who = (entry.principal, entry.host)
        cell = cells[who]
        operation, permission = entry.operation, entry.permission_type
        if cell.remove(operation, permission):
            key = (*who, operation, permission)
            del names.patterns[key][is_prefix, name]
            if not names.patterns[key]:
                del names.patterns[key]
        if cell.counts:
            return
        del cells[who]
        if cells:
            return
        # Names without entries may be allowed to everyone, so none may stay.
        del by_name[name]
        if is_prefix:
            names.lengths[len(name)] -= 1
            if not names.lengths[len(name)]:
                del names.lengths[len(name)]

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

        def patterns(permission: Permission) -> list[dict[_Pattern, None]]:
            found = (
                names.patterns.get((*each, of, permission))
                for each in _who(principal, host)
                for of in (operation, AclOperation.ALL)
            )
            return [each for each in found if each is not None]

        allowed, denied = patterns(Permission.ALLOW), patterns(Permission.DENY)
        if any(_EVERY in each for each in denied):
            return False
        if any(_EVERY in each for each in allowed):
            return True
        prefixes = {name for each in denied for is_prefix, name in each if is_prefix}
        lengths = {len(each) for each in prefixes}

        def is_denied(pattern: _Pattern) -> bool:
            name = pattern[1]
            if any(name[:length] in prefixes for length in lengths if length <= len(name)):
                return True
            return not pattern[0] and any(pattern in each for each in denied)

        return any(not is_denied(pattern) for each in allowed for pattern in each)


def _who(principal: str, host: str) -> tuple[tuple[str, str], ...]:
    return (
        (principal, host),
        (principal, ANY_NAME),
        (ANY_PRINCIPAL, host),
        (ANY_PRINCIPAL, ANY_NAME),
    )
