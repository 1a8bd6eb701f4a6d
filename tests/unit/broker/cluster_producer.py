"""A transactional producer of KIP-890 in a cluster of `homes`, step by step."""

from dataclasses import dataclass, field

from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.groups.commits import Commit, Committer, MemberAtEpoch, OffsetToCommit
from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import EPOCH_PER_TRANSACTION
from tailrace.errors import TailraceError
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.records.builder import build_batch
from tests.unit.broker.homes import DATA, GROUPS, IDS, TRANSACTIONS, Home, Homes

UNAVAILABLE = (
    CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError,
)  # fmt: skip
RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass
class Producer:
    """A client; each request goes to the leader that the controller has."""

    homes: Homes
    name: str
    timeout_ms: int = 60_000
    now: TransactionalProducer = field(
        default_factory=lambda: TransactionalProducer(ProducerId(-1), ProducerEpoch(-1))
    )

    @property
    def coordinator(self) -> Home:
        return self.homes.leader(TRANSACTIONS)

    async def begin(self) -> ErrorCode:
        """Ask InitProducerId as a new client."""
        found = await self.coordinator.transactions.init_producer_id(
            InitProducerIdRequest(
                transactional_id=self.name, transaction_timeout_ms=self.timeout_ms
            ),
            5,
        )
        if not found.error_code:
            self.now = TransactionalProducer(
                ProducerId(found.producer_id), ProducerEpoch(found.producer_epoch)
            )
        return ErrorCode(found.error_code)

    async def admitted(self, home: Home, partition: TopicPartition) -> ErrorCode:
        """Add a partition to the transaction, as its leader does for the first batch."""
        asked = AddPartitions(
            transactional_id=self.name,
            producer=self.now,
            partitions=frozenset({partition}),
            client_version=EPOCH_PER_TRANSACTION,
        )
        found = await home.coordinators.verdicts_elsewhere(asked, is_adding=True)
        if found is not None:
            return found[partition]
        return await home.transactions.add_partitions(asked)

    async def send(self, partition: TopicPartition, value: bytes) -> ErrorCode:
        """Append the first batch of the transaction in a partition.

        Raises:
            TailraceError: it is not known whether it is in the log.
        """
        home = self.homes.leader(partition)
        log = home.coordinators.log_of(partition)
        try:
            guard = log.begin_verification(self.now, begins_at_zero=True)
        except TailraceError:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if guard is not None:
            code = await self.admitted(home, partition)
            if code is not ErrorCode.NONE:
                return code
        batch = build_batch(
            [(self.name.encode(), value)],
            timestamp=self.homes.outside.clock.now_ms(),
            producer_id=self.now.producer_id,
            producer_epoch=self.now.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        log.append(batch, guard=guard)
        committed = log.committed()
        if committed is not None:
            await committed
        return ErrorCode.NONE

    async def send_offset(self, group_id: str, offset: int) -> ErrorCode:
        """Commit an offset of a group with the transaction; raises as `send`."""
        home = self.homes.leader(GROUPS)
        shard = home.coordinators.groups.shard_of(group_id)
        guard = shard.begin_verification(self.now, begins_at_zero=True)
        if guard is not None:
            code = await self.admitted(home, GROUPS)
            if code is not ErrorCode.NONE:
                return code
        wanted = commit_of(group_id, offset, producer=self.now)
        [code] = await shard.run(
            lambda groups, now_ms: groups.commit(wanted, now_ms)._replace(guard=guard)
        )
        return code

    async def end(self, *, is_commit: bool) -> ErrorCode:
        """Ask EndTxn v5."""
        found = await self.coordinator.transactions.end(
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.now.producer_id,
                producer_epoch=self.now.producer_epoch,
                committed=is_commit,
            ),
            5,
        )
        if not found.error_code:
            self.now = TransactionalProducer(
                ProducerId(found.producer_id), ProducerEpoch(found.producer_epoch)
            )
        return ErrorCode(found.error_code)


def commit_of(
    group_id: str, offset: int, *, producer: TransactionalProducer | None = None
) -> Commit:
    """A commit of somebody who is no member, for the first partition of the data."""
    to_commit = OffsetToCommit(DATA[0], IDS["data"], offset, -1, "")
    return Commit(group_id, Committer(-1, "", None), [to_commit], 9, producer=producer)


async def commit(home: Home, group_id: str, offset: int) -> ErrorCode:
    """Commit an offset; raises what the shard raises."""
    wanted = commit_of(group_id, offset)
    [code] = await home.coordinators.groups.shard_of(group_id).run(
        lambda groups, now_ms: groups.commit(wanted, now_ms)
    )
    return code


async def committed(home: Home, group_id: str) -> int:
    """The offset that a group has committed, -1 for none; raises what the shard raises."""
    found = await home.coordinators.groups.shard_of(group_id).run(
        lambda groups, _: groups.fetch_offsets(
            group_id, [DATA[0]], fetcher=MemberAtEpoch(None, -1), is_stable=False
        )
    )
    assert not isinstance(found, ErrorCode)
    return -1 if found[0].committed is None else found[0].committed.offset
