"""One change of a partition, as a controller decides it: leader, ISR, eligible leaders, assignment.

    what is wanted ─► reassignment done? ─► eligible leaders ─► election ─► PartitionChangeRecord

Every reason for a change comes through here: a broker is fenced, returns or shuts down, a leader
alters its ISR, an operator reassigns or elects. Kafka's `PartitionChangeBuilder`, whose records
these are, field by field.

Invariant: only a member of the ISR, or without any an eligible replica (KIP-966), is elected,
unless the election may be unclean.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

NO_LEADER: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1
"""The leader was elected uncleanly, and records may be lost."""

_BUMP_ON_SHRINK_BELOW: Final = 12
"""`metadata.version` of Kafka 3.6. Before it a smaller ISR came with a new leader epoch, which its
brokers needed (KAFKA-15021)."""
DIRECTORIES_SINCE: Final = 17
"""`metadata.version` since which records name log directories (KIP-858)."""
CORDONS_SINCE: Final = 30
"""`metadata.version` since which registrations say which of them are cordoned (KIP-1066)."""


class Election(Enum):
    """Which replicas may become the leader, and which comes first."""

    ONLINE = "the leader, if it may stay, or the first that may lead"
    PREFERRED = "the first replica, if it may lead"
    UNCLEAN = "also one that may lack records, if no other may lead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The facts that hold for every partition of a change."""

    metadata_version: int
    has_elr: bool
    """Whether eligible leader replicas are kept (KIP-966)."""
    may_lead: Callable[[int, UUID | None], bool]
    """Whether a broker serves, and has the log directory of this replica, where it is known."""
    default_directory: Callable[[int], UUID]
    """The log directory of a replica that is new on a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The values that a change asks for; None keeps the present one."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    directories: Mapping[int, UUID] | None = None
    """Log directories of some replicas, by broker."""
    recovery: int | None = None
    election: Election = Election.ONLINE
    unclean: frozenset[int] = frozenset()
    """Brokers that did not shut down cleanly, and may lack records since."""
    emptied: int | None = None
    """A broker that has lost the log directory of its replica, and begins with an empty one."""


def change_partition(
    state: "PartitionRecord", wanted: Wanted, rules: Rules, *, insync_min: int
) -> dict[str, Any]:
    """The fields of the PartitionChangeRecord that makes the change; empty: nothing changes.

    `insync_min` is the topic's `min.insync.replicas`, at most its replication factor.
    """
    return _Change(state, wanted, rules, insync_min=insync_min).fields()


class _Change:
    def __init__(
        self, state: "PartitionRecord", wanted: Wanted, rules: Rules, *, insync_min: int
    ) -> None:
        def kept(value: tuple[int, ...] | None, before: tuple[int, ...]) -> tuple[int, ...]:
            return before if value is None else value

        self._state, self._wanted, self._rules = state, wanted, rules
        self._isr = kept(wanted.isr, state.isr)
        self._replicas = kept(wanted.replicas, state.replicas)
        self._adding = kept(wanted.adding, state.adding_replicas)
        self._removing = kept(wanted.removing, state.removing_replicas)
        self._directories = {
            **dict(zip(state.replicas, state.directories, strict=False)),
            **(wanted.directories or {}),
        }
        self._was_eligible = state.eligible_leader_replicas or ()
        self._eligible = self._was_eligible
        self._last_known = state.last_known_elr or ()
        self._insync_min = insync_min

    def fields(self) -> dict[str, Any]:
        """The fields of the record."""
        self._complete_reassignment()
        self._find_eligible()
        changes: dict[str, Any] = {}
        leader, is_unclean = self._elect()
        recovery = self._wanted.recovery
        if leader != self._state.leader:
            changes["leader"] = leader
            # From the eligible ones: it is in sync with itself alone.
            if leader in self._eligible:
                self._isr = (leader,)
                self._eligible = tuple(each for each in self._eligible if each != leader)
            if is_unclean:
                changes["isr"] = (leader,)
                # Whatever the last leader says: it has recovered, and this one has not. (Kafka's
                # controller takes it for both.)
                recovery = RECOVERING
        # A replica that leaves must not go on as leader or follower of an epoch that others share.
        elif not set(self._state.replicas) <= set(self._replicas):
            changes["leader"] = self._state.leader
        # Whom an unclean election has passed over, may lack what its leader writes from now on.
        if not self._rules.has_elr or "isr" in changes:
            self._eligible = ()
        if self._eligible != self._was_eligible:
            changes["eligible_leader_replicas"] = self._eligible
        # Without eligible replicas the last member of an ISR stays: it alone has all records.
        may_shrink = bool(self._isr) or self._rules.has_elr
        if "isr" not in changes and may_shrink and self._isr != self._state.isr:
            changes["isr"] = self._isr
        is_smaller = not set(self._state.isr) <= set(changes.get("isr", self._state.isr))
        if is_smaller and self._rules.metadata_version < _BUMP_ON_SHRINK_BELOW:
            changes.setdefault("leader", self._state.leader)
        self._note_last_known(changes)
        self._note_assignment(changes)
        if recovery is not None and recovery != self._state.leader_recovery_state:
            changes["leader_recovery_state"] = recovery
        return changes

    def _complete_reassignment(self) -> None:
        """Take the target as the assignment, once what it adds is in sync."""
        if not self._adding and not self._removing:
            return
        isr = tuple(each for each in self._isr if each not in self._removing)
        replicas = tuple(each for each in self._replicas if each not in self._removing)
        if not isr or not replicas or not set(self._adding) <= set(isr):
            return
        # With fewer replicas afterwards, those that stay must be in sync, or a small ISR would be
        # left of one that is large enough now.
        if len(self._adding) < len(self._removing) and not set(replicas) <= set(isr):
            return
        self._isr, self._replicas = isr, replicas
        self._adding = self._removing = ()

    def _find_eligible(self) -> None:
        """Find who has all committed records beside the ISR, which has too few members."""
        self._last_known = tuple(each for each in self._last_known if each in self._have_log())
        if not self._rules.has_elr:
            return
        # With enough members the high watermark moves on, and who is not among them falls back.
        if len(self._isr) >= self._insync_min:
            self._eligible = ()
            return
        known = {*self._was_eligible, *self._state.isr} & self._have_log()
        self._eligible = tuple(sorted(known - set(self._isr) - self._wanted.unclean))

    def _have_log(self) -> set[int]:
        """The replicas before and after the change.

        Beyond Kafka 4.3, whose controller may elect others one day: who is no replica any more, or
        has lost its directory, comes back with an empty log, to which the others would cut theirs.
        """
        return {*self._state.replicas} & {*self._replicas} - {self._wanted.emptied}

    def _elect(self) -> tuple[int, bool]:
        """The leader, -1 for none; and whether records may be lost."""
        order: Iterable[int] = self._replicas
        if self._wanted.election is Election.PREFERRED:
            order = (self._replicas[0], self._state.leader, *self._replicas[1:])
        else:
            order = (self._state.leader, *self._replicas)
        for each in order:
            if self._may_be_elected(each):
                return each, False
        # The last leader, before nobody was left: better than anybody else, where nobody is sure to
        # have all (KIP-966, "balanced" recovery).
        if (
            self._rules.has_elr
            and not self._eligible
            and not self._isr
            and len(self._last_known) == 1
            and self._may_lead(self._last_known[0])
        ):
            return self._last_known[0], True
        if self._wanted.election is Election.UNCLEAN:
            for each in self._replicas:
                if self._may_lead(each):
                    return each, True
        return NO_LEADER, False

    def _may_be_elected(self, broker_id: int) -> bool:
        has_all = broker_id in self._isr or (not self._isr and broker_id in self._eligible)
        return has_all and self._may_lead(broker_id)

    def _may_lead(self, broker_id: int) -> bool:
        return self._rules.may_lead(broker_id, self._directories.get(broker_id))

    def _note_last_known(self, changes: dict[str, Any]) -> None:
        if not self._rules.has_elr:
            return
        if self._last_known != (self._state.last_known_elr or ()):
            changes["last_known_elr"] = self._last_known
        leader = changes.get("leader")
        if leader is None:
            return
        if leader == NO_LEADER and not self._last_known and self._state.leader in self._have_log():
            # Only when the partition loses its leader, not at each change after that.
            changes["last_known_elr"] = (self._state.leader,)
        elif leader != NO_LEADER and self._last_known:
            changes["last_known_elr"] = ()

    def _note_assignment(self, changes: dict[str, Any]) -> None:
        state = self._state
        if self._rules.metadata_version >= DIRECTORIES_SINCE:
            directories = tuple(
                self._directories.get(each) or self._rules.default_directory(each)
                for each in self._replicas
            )
            if directories != state.directories:
                changes["directories"] = directories
        if self._replicas != state.replicas:
            changes["replicas"] = self._replicas
        if self._removing != state.removing_replicas:
            changes["removing_replicas"] = self._removing
        if self._adding != state.adding_replicas:
            changes["adding_replicas"] = self._adding
