"""`Authorizer`: decides by access control lists who may do what (Kafka's StandardAuthorizer).

    a super user                              may do everything
    an entry denies it                        denied, whatever others allow
    an entry allows it                        allowed
    entries for the resource, of others       denied
    no entries for the resource               allow.everyone.if.no.acl.found

The entries are those of the metadata log. Nobody tells the authorizer of a change: with each
question it looks whether the image has other entries, which is one comparison of objects, and
replays what differs. So an answer never rests on entries that this node knows to be gone. Where
thousands differ, as after a snapshot, another index is made beside the requests, a slice in
each turn of the loop; until it is whole, each question looks through all entries itself.

Denials are in the audit log, since they show an intruder, or why a program fails, and what was
allowed for debugging (`audit`). Answers to repeated requests are asked for once, and logged once.

Not here: what each API needs (`needs`), and what a refusal looks like (`handlers.guards`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tailrace.model import Principal
from tailrace.protocol.frames import RequestHeader
from tailrace.runtime.log_lines import TRACE
from tailrace.security.acls import (
    ANY_NAME,
    ANY_PRINCIPAL,
    OPERATIONS,
    AclOperation,
    AclResource,
    PatternType,
    title,
)
from tailrace.security.audit import AUDIT, Audit
from tailrace.security.rules import Rules, Verdict

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import AccessControlEntryRecord

ANSWERS_KEPT_MAX: Final = 4096
"""Most answers that are remembered, until entries change or there are more."""

INDEXED_INLINE_MAX: Final = 200
"""Most entries that are indexed in one step: each takes some 5 us."""

# A name that Kafka asks about too, so that super users and open clusters need no entry.
_SOME_NAME: Final = "hardcode"

# Asked for each right: without a look-up.
_is_logged: Final = AUDIT.isEnabledFor

_Question = tuple[Principal, str, AclOperation, AclResource, str]


class Authorizer:
    """Answers questions on one event loop."""

    def __init__(
        self,
        entries_now: Callable[[], Mapping[UUID, "AccessControlEntryRecord"]],
        audit: Audit,
        *,
        super_users: Iterable[str] = (),
        allows_without_entries: bool = False,
    ) -> None:
        """`entries_now` gives the entries of the newest image; the same object if none changed.

        `audit` gets the denials.
        `super_users` are principals, such as `User:admin`. `allows_without_entries` is
        `allow.everyone.if.no.acl.found`.
        """
        self._entries_now = entries_now
        self._super_users = frozenset(super_users)
        self._allows_without_entries = allows_without_entries
        self._entries: Mapping[UUID, AccessControlEntryRecord] = {}
        self._rules = Rules()
        self._unindexed: Iterator[AccessControlEntryRecord] | None = None
        """Entries that are not in `_rules` yet; None: it has all, and answers."""
        self._answers: dict[_Question, bool] = {}
        self._answers_of_some: dict[_Question, bool] = {}
        """Answers about any name; clients may ask for the empty name, too, which is another one."""
        self._audit = audit

    @property
    def version(self) -> object:
        """Another object after each change of the entries: what rests on them compares it."""
        self.refresh()
        return self._entries

    def refresh(self) -> None:
        """Take the entries of the newest image over; called by each question."""
        entries = self._entries_now()
        if entries is self._entries:
            return
        removed, added = _difference(self._entries, entries)
        self._entries = entries
        self._answers.clear()
        self._answers_of_some.clear()
        if self._unindexed is not None or len(removed) + len(added) > INDEXED_INLINE_MAX:
            is_begun = self._unindexed is not None
            self._rules, self._unindexed = Rules(), iter(entries.values())
            if not is_begun:
                asyncio.get_running_loop().call_soon(self._index)
            return
        for each in removed:
            self._rules.remove(each)
        for each in added:
            self._rules.add(each)

    def allows(
        self,
        header: RequestHeader,
        operation: AclOperation,
        resource: AclResource,
        *,
        name: str,
        is_access: bool = True,
    ) -> bool:
        """Whether the client of a request may do an operation with a resource of that name.

        `is_access`: the client asks for just this, so a denial is logged. Otherwise the answer only
        decides what is shown, or another right would do as well, and it is logged as a detail
        (`logIfDenied` of Kafka's Action).
        """
        self.refresh()
        caller = header.caller
        question = (caller.principal, caller.host, operation, resource, name)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._decided(question)
        level = logging.DEBUG if answer else logging.INFO if is_access else TRACE
        if _is_logged(level):
            self._log(header, question, level, is_allowed=answer)
        return answer

    def _decided(self, question: _Question) -> bool:
        if len(self._answers) >= ANSWERS_KEPT_MAX:
            self._answers.clear()
        answer = self._answers[question] = self._decide(question)[0]
        return answer

    def _answer(self, question: _Question) -> bool:
        """The answer where it is not the client that has asked for it."""
        self.refresh()
        answer = self._answers.get(question)
        return self._decided(question) if answer is None else answer

    def _log(
        self, header: RequestHeader, question: _Question, level: int, *, is_allowed: bool
    ) -> None:
        _, _, operation, resource, name = question
        fields = {
            "operation": operation.name,
            "resource_type": resource.name,
            "resource": name,
            "rule": self._decide(question)[1],
        }
        event = "access_allowed" if is_allowed else "access_denied"
        self._audit.accessed(header, event, fields, level=level)

    def allows_some(
        self, header: RequestHeader, operation: AclOperation, resource: AclResource
    ) -> bool:
        """Whether the client may do an operation with any resource of a kind."""
        caller = header.caller
        if self._answer((caller.principal, caller.host, operation, resource, _SOME_NAME)):
            return True
        question = (caller.principal, caller.host, operation, resource, "")
        answer = self._answers_of_some.get(question)
        if answer is None:
            if len(self._answers_of_some) >= ANSWERS_KEPT_MAX:
                self._answers_of_some.clear()
            answer = self._answers_of_some[question] = self._allows_some(question)
        return answer

    def operations(self, header: RequestHeader, resource: AclResource, name: str) -> int:
        """The operations that the client may do, as bits by Kafka's numbers (KIP-430)."""
        caller = header.caller
        allowed = (
            each
            for each in OPERATIONS[resource]
            if self._answer((caller.principal, caller.host, each, resource, name))
        )
        return sum(1 << each for each in allowed)

    @property
    def entries(self) -> Mapping[UUID, "AccessControlEntryRecord"]:
        """The entries of the newest image, in the order in which they were made."""
        return self._entries_now()

    def _index(self) -> None:
        """Index the next entries; called until all are."""
        assert self._unindexed is not None, "the last entry ends the calls"
        for _ in range(INDEXED_INLINE_MAX):
            entry = next(self._unindexed, None)
            if entry is None:
                self._unindexed = None
                return
            self._rules.add(entry)
        asyncio.get_running_loop().call_soon(self._index)

    def _allows_some(self, question: _Question) -> bool:
        principal, host, operation, resource, _ = question
        who, address, rules = str(principal), address_text(host), self._rules
        if self._unindexed is not None:
            rules = Rules(
                _of_client(self._entries.values(), resource, principal=who, address=address)
            )
        return rules.allows_some(who, address, operation, resource=resource)

    def _verdict(self, question: _Question) -> Verdict:
        principal, host, operation, resource, name = question
        who, address = str(principal), address_text(host)
        if self._unindexed is None:
            return self._rules.verdict(who, address, operation, resource=resource, name=name)
        # Without `AclFilter`, which takes five times as long: up to 10,000 entries are looked at.
        covering = [
            each
            for each in self._entries.values()
            if each.resource_type == resource
            and (
                name.startswith(each.resource_name)
                if each.pattern_type == PatternType.PREFIXED
                else each.resource_name in (name, ANY_NAME)
            )
        ]
        rules = Rules(_of_client(covering, resource, principal=who, address=address))
        found = rules.verdict(who, address, operation, resource=resource, name=name)
        return found._replace(has_entries=bool(covering))

    def _decide(self, question: _Question) -> tuple[bool, str]:
        """The answer, and the rule that it rests on, for people."""
        principal, _, _, resource, _ = question
        if str(principal) in self._super_users:
            return True, "SuperUser"
        found = self._verdict(question)
        if found.pattern is not None:
            kind, text = found.pattern
            word = "Allow" if found.is_allowed else "Deny"
            return found.is_allowed, f"{word}:{title(resource)}:{kind.name}:{text}"
        if not found.has_entries and self._allows_without_entries:
            return True, "DefaultAllow"
        return False, "DefaultDeny"


def _difference(
    before: Mapping[UUID, "AccessControlEntryRecord"],
    after: Mapping[UUID, "AccessControlEntryRecord"],
) -> tuple[list["AccessControlEntryRecord"], list["AccessControlEntryRecord"]]:
    """The entries that have gone, and those that have come.

    Both have the order of the log, so that one walk finds what they have in common, by identity:
    10,000 entries take 0.3 ms. Ids are hashed in Python, and would take ten times as long.
    """
    known, removed, at = list(after.values()), [], 0
    for each in before.values():
        if at < len(known) and known[at] is each:
            at += 1
        else:
            removed.append(each)
    return removed, known[at:]


def _of_client(
    entries: Iterable["AccessControlEntryRecord"],
    resource: AclResource,
    *,
    principal: str,
    address: str,
) -> Iterator["AccessControlEntryRecord"]:
    """The entries for a kind of resource that count for a client."""
    principals, hosts = (principal, ANY_PRINCIPAL), (address, ANY_NAME)
    return (
        each
        for each in entries
        if each.resource_type == resource and each.principal in principals and each.host in hosts
    )


@lru_cache(maxsize=1024)
def address_text(host: str) -> str:
    """An address as entries have it: in the form of Java's `getHostAddress`.

    That of IPv6 has no `::`, so `[::1]` is `0:0:0:0:0:0:0:1`, and an IPv4 address in one of IPv6 is
    itself.
    """
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        packed = address.packed
        return ":".join(f"{int.from_bytes(packed[at : at + 2]):x}" for at in range(0, 16, 2))
    return str(address)
