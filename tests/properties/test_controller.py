"""A controller with random brokers, leaders and operators: what must hold after every record.

No network: requests go to the rules (`cluster.control`), and their records are replayed.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.delta import MetadataDelta
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.partition_change import NO_LEADER, RECOVERING
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.protocol.messages.alter_partition import BrokerState
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tailrace.protocol.metadata_records import PartitionChangeRecord, PartitionRecord
from tests.unit.cluster.control.controlled import CAUGHT_UP, Controlled, directory

if TYPE_CHECKING:
    from uuid import UUID

BROKERS: Final = (0, 1, 2, 3, 4)
TOPICS: Final = ("careful", "careless", "strict")
QUOTAS: Final = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate", "connection_creation_rate", "unknown",
)  # fmt: skip
STEPS: Final = 250


class Watched(Controlled):
    """A cluster of which every record is checked when it is replayed."""

    def __init__(self, *, seed: int, has_elr: bool) -> None:
        self.leaders: dict[tuple[UUID, int, int], int] = {}
        """The leader of each epoch of each partition."""
        self.in_sync: list[int] = []
        """Whom a leader has just proposed as in sync."""
        self.proposed: tuple[int, ...] = ()
        """The replicas of the partition whose reassignment is being cancelled."""
        super().__init__(seed=seed, has_elr=has_elr)

    def append(self, records: Sequence[RecordToWrite]) -> list[Message]:
        """Replay records one by one, and check each of them and the state after all."""
        image = self.state.image
        for each in records:
            delta = MetadataDelta(image)
            delta.replay(each.record)
            after = delta.image()
            if isinstance(each.record, PartitionChangeRecord):
                self.check_change(each.record, image, after)
            image = after
        made = super().append(records)
        self.check()
        return made

    def check_change(
        self, record: PartitionChangeRecord, before: MetadataImage, after: MetadataImage
    ) -> None:
        """Check one change of a partition."""
        old = before.topics[record.topic_id].partitions[record.partition_id]
        new = after.topics[record.topic_id].partitions[record.partition_id]
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch - old.leader_epoch in (0, 1)
        if new.leader != old.leader:
            assert new.leader_epoch == old.leader_epoch + 1
        name = before.topics[record.topic_id].name
        had_all = {*old.isr, *(old.eligible_leader_replicas or ()), *self.in_sync}
        if new.leader not in (old.leader, NO_LEADER) and new.leader not in had_all:
            # Who may lack records leads only where that is allowed, or led last.
            assert name == "careless" or old.last_known_elr == (new.leader,)
            # It says so, unless an operator has cancelled a reassignment at that price.
            if new.leader not in self.proposed:
                assert new.leader_recovery_state == RECOVERING
                assert new.isr == (new.leader,)
        if not self.state.has_elr:
            assert not new.eligible_leader_replicas
            assert not new.last_known_elr
            assert new.isr

    def check(self) -> None:
        """Check the state of the cluster."""
        brokers = self.state.image.brokers
        for topic in self.state.image.topics.values():
            for number, each in topic.partitions.items():
                assert len(set(each.isr)) == len(each.isr)
                assert set(each.isr) <= set(each.replicas)
                eligible = {*(each.eligible_leader_replicas or ())}
                assert eligible <= {*each.replicas} - {*each.isr}
                assert len(each.directories) == len(each.replicas)
                assert set(each.adding_replicas) <= set(each.replicas)
                if each.leader == NO_LEADER:
                    continue
                assert each.leader in each.isr
                assert not brokers[each.leader].fenced
                epoch = topic.topic_id, number, each.leader_epoch
                assert self.leaders.setdefault(epoch, each.leader) == each.leader
                # Out of service means out of sync, as far as someone else is in sync.
                assert not any(
                    broker not in brokers or brokers[broker].fenced for broker in each.isr
                )


class Course:
    """Random requests to one cluster."""

    def __init__(self, seed: int, cluster: Watched) -> None:
        self.chance = Random(seed)
        self.cluster = cluster
        for each in BROKERS:
            self.register(each)
            self.cluster.beat(each)
        configs = {"careless": {"unclean_leader_election_enable": "true"},
                   "strict": {"min_insync_replicas": "2"}}  # fmt: skip
        for name in TOPICS:
            factor = self.chance.randint(1, 4)
            assignments = [self.chance.sample(BROKERS, factor) for _ in range(3)]
            self.cluster.topic(*assignments, name=name, **configs.get(name, {}))

    def run(self) -> None:
        """Take a number of steps, and end where all brokers serve."""
        for _ in range(STEPS):
            self.step()
        self.heal()

    def step(self) -> None:
        """Ask for something."""
        steps: list[Callable[[], object]] = [
            self.beat, self.beat, self.beat, self.crash, self.alter, self.alter, self.alter,
            self.silence, self.stop, self.elect, self.reassign, self.balance, self.assign,
            self.lose_directory, self.unregister, self.configure, self.limit, self.add_users,
        ]  # fmt: skip
        self.chance.choice(steps)()

    # -- brokers ------------------------------------------------------------------------------

    def register(self, broker_id: int) -> None:
        """A new incarnation, after a clean stop or a crash."""
        known = self.cluster.state.image.brokers.get(broker_id)
        is_clean = known is not None and self.chance.random() < 0.5
        request = self.cluster.registration(
            broker_id,
            log_dirs=(directory(broker_id), directory(broker_id, 1)),
            previous_broker_epoch=known.broker_epoch if known and is_clean else -1,
        )
        self.cluster.refused(ApiKey.BROKER_REGISTRATION, request)

    def someone(self) -> int | None:
        """A broker that is registered."""
        brokers = [*self.cluster.state.image.brokers]
        return self.chance.choice(brokers) if brokers else None

    def beat(self) -> None:
        """A heartbeat, of a broker that may lag."""
        broker_id = self.someone()
        if broker_id is not None:
            last = self.cluster.state.next_offset - 1
            offset = self.chance.choice([CAUGHT_UP, last, max(last - 5, 0)])
            self.cluster.beat(broker_id, current_metadata_offset=offset)

    def stop(self) -> None:
        """A heartbeat of a broker that wants to stop, or to be fenced."""
        broker_id = self.someone()
        if broker_id is not None:
            stops = self.chance.random() < 0.7
            fences = not stops or self.chance.random() < 0.2
            self.cluster.beat(broker_id, want_shut_down=stops, want_fence=fences)

    def crash(self) -> None:
        """A broker comes back, if its session has ended."""
        self.register(self.chance.choice(BROKERS))

    def silence(self) -> None:
        """Time in which some brokers are not heard of."""
        for _ in range(3):
            self.cluster.pass_ms(4000)
            for broker_id in [*self.cluster.state.image.brokers]:
                if self.chance.random() < 0.6:
                    self.cluster.beat(broker_id)

    def unregister(self) -> None:
        """A broker is forgotten, seldom."""
        broker_id = self.someone()
        if broker_id is not None and self.chance.random() < 0.2:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            self.cluster.do(ApiKey.UNREGISTER_BROKER, request)

    def lose_directory(self) -> None:
        """A directory fails, unless it is the last."""
        broker_id = self.someone()
        if broker_id is not None and len(self.cluster.state.image.brokers[broker_id].log_dirs) > 1:
            lost = directory(broker_id, self.chance.randint(0, 1))
            self.cluster.beat(broker_id, offline_log_dirs=(lost,))

    # -- partitions ---------------------------------------------------------------------------

    def partition(self) -> tuple[str, int, PartitionRecord]:
        """A partition."""
        name, number = self.chance.choice(TOPICS), self.chance.randint(0, 2)
        return name, number, self.cluster.partition(name, number)

    def alter(self) -> None:
        """A leader alters its ISR, or does something silly."""
        name, number, state = self.partition()
        if state.leader == NO_LEADER:
            return
        others = [each for each in state.replicas if each != state.leader]
        isr = [state.leader, *self.chance.sample(others, self.chance.randint(0, len(others)))]
        recovery = 0
        if self.chance.random() < 0.1:
            isr = self.chance.choices(BROKERS, k=2)
            recovery = self.chance.randint(0, 1)
        brokers = self.cluster.state.image.brokers
        members = [
            BrokerState(
                broker_id=each,
                broker_epoch=brokers[each].broker_epoch if each in brokers else 5,
            )
            for each in isr
        ]
        before = self.cluster.state.next_offset
        epoch = state.leader_epoch + (self.chance.random() < 0.05)
        self.cluster.in_sync = isr
        answer = self.cluster.alter(
            *members, name=name, number=number, leader_epoch=epoch, leader_recovery_state=recovery
        )
        self.cluster.in_sync = []
        if answer.error_code == ErrorCode.NONE:
            after = self.cluster.partition(name, number)
            shown = answer.leader_epoch, answer.partition_epoch, answer.isr
            assert shown == (after.leader_epoch, after.partition_epoch, after.isr)
        elif answer.error_code != ErrorCode.NEW_LEADER_ELECTED:
            assert self.cluster.state.next_offset == before

    def elect(self) -> None:
        """An operator elects."""
        self.cluster.elect(self.chance.randint(0, 1), 0, 1, 2, name="careless")
        self.cluster.elect(0, 0, 1, 2, name=self.chance.choice(TOPICS))

    def balance(self) -> None:
        """The controller's own elections."""
        self.cluster.balance()
        self.cluster.elect_unclean()

    def reassign(self) -> None:
        """An operator moves replicas, or cancels that."""
        name, number, state = self.partition()
        brokers = [*self.cluster.state.image.brokers]
        target = self.chance.sample(brokers, self.chance.randint(0, len(brokers)))
        is_cancelled = self.chance.random() < 0.3
        self.cluster.proposed = state.replicas if is_cancelled else ()
        self.cluster.reassign(None if is_cancelled else target, name=name, number=number)
        self.cluster.proposed = ()

    def assign(self) -> None:
        """A broker says where a replica is."""
        _, number, state = self.partition()
        broker_id = self.chance.choice(state.replicas)
        if broker_id in self.cluster.state.image.brokers:
            place = directory(broker_id, self.chance.randint(0, 2))
            self.cluster.report(broker_id, [(place, state.topic_id, number)])

    def configure(self) -> None:
        """The size of an ISR changes."""
        value = str(self.chance.randint(1, 3))
        self.cluster.configure(2, "strict", ("min.insync.replicas", 0, value))

    # -- users and quotas ---------------------------------------------------------------------

    def limit(self) -> None:
        """Quotas of some entities are set and removed, with values that may not be possible."""
        chance, before = self.chance, self.cluster.state.image.quotas
        entities = {}
        for _ in range(chance.randint(1, 3)):
            names = {
                chance.choice(("user", "client-id", "ip") * 5 + ("group", "")): chance.choice(
                    (None, "", "10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2")
                )
                for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3)))
            }
            ops = tuple(
                OpData(
                    key=chance.choice(QUOTAS),
                    value=chance.choice((1.0, 2.0, 2.5, 3.0000001, 2.0**31, 2.0**64, 0.0, -1.0)),
                    remove=chance.random() < 0.4,
                )
                for _ in range(chance.randint(0, 3))
            )
            parts = tuple(
                EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
            )
            entities[frozenset(names.items())] = EntryData(entity=parts, ops=ops)
        is_dry = chance.random() < 0.1
        request = AlterClientQuotasRequest(entries=tuple(entities.values()), validate_only=is_dry)
        answer = self.cluster.do(ApiKey.ALTER_CLIENT_QUOTAS, request)
        after = self.cluster.state.image.quotas
        assert len(answer.entries) == len(entities)
        if is_dry or all(each.error_code for each in answer.entries):
            assert after == before
        for entity, quotas in after.items():
            assert quotas
            assert all(value > 0 for value in quotas.values())
            assert ("ip" in dict(entity.parts)) == (quotas.keys() == {"connection_creation_rate"})
        # Without an order: one entity is kept once.
        assert len({frozenset(entity.parts) for entity in after}) == len(after)

    def add_users(self) -> None:
        """Credentials of some users are set and removed, with values that may not be possible."""
        chance, before = self.chance, self.cluster.state.image.scram
        upsertions = tuple(
            ScramCredentialUpsertion(
                name=chance.choice(("a", "b", "c", "")),
                mechanism=chance.choice((0, 1, 1, 1, 2, 2, 3)),
                iterations=chance.choice((4095, 4096, 4096, 4096, 16_384, 16_385)),
                salt=chance.randbytes(4),
                salted_password=chance.randbytes(8),
            )
            for _ in range(chance.randint(0, 2))
        )
        deletions = tuple(
            ScramCredentialDeletion(
                name=chance.choice(("a", "b", "c", "")), mechanism=chance.choice((0, 1, 1, 2, 2, 3))
            )
            for _ in range(chance.randint(0, 2))
        )
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
        answer = self.cluster.do(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
        changed = {each.user for each in answer.results if not each.error_code}
        after = self.cluster.state.image.scram
        for key in {*before, *after}:
            assert (before.get(key) == after.get(key)) or key.name in changed

    def heal(self) -> None:
        """All brokers serve: each partition has a leader again that has all committed records."""
        cluster = self.cluster
        cluster.pass_ms(60_000)
        for each in BROKERS:
            self.register(each)
        # A replica in a directory that is gone cannot lead, until it is reported elsewhere.
        for topic in cluster.state.image.topics.values():
            for number, state in topic.partitions.items():
                for each in state.replicas:
                    cluster.report(each, [(directory(each), topic.topic_id, number)])
        for each in BROKERS:
            cluster.beat(each)
        cluster.elect_unclean()
        for topic in cluster.state.image.topics.values():
            for state in topic.partitions.values():
                had_all = {*state.isr, *(state.eligible_leader_replicas or ())}
                # Without anyone who is known to have all, an operator decides; no broker does.
                if had_all & set(state.replicas) or topic.name == "careless":
                    assert state.leader != NO_LEADER


@given(seed=st.integers(0, 2**32), has_elr=st.booleans())
@example(seed=1, has_elr=True)
@example(seed=2, has_elr=False)
def test_leaders_are_in_sync_and_epochs_only_rise(*, seed: int, has_elr: bool) -> None:
    """Whatever brokers, leaders and operators ask for, in any order."""
    Course(seed, Watched(seed=seed, has_elr=has_elr)).run()
