"""Rights of clients at a running broker: what changes with them, and what nobody may learn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.handlers.guarded_repeats import GuardedRepeats
from tailrace.handlers.guards import CHECKED_INLINE_MAX
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tailrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.security.acls import AclBinding, AclResource, PatternType, Permission
from tailrace.security.acls import AclOperation as Op
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.testing import Outside, Peer
from tailrace.values import replace
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    BY_NAME_PRODUCE,
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    running,
)
from tests.unit.broker.principals import User, secured
from tests.unit.broker.test_sasl_listeners import ALICE, BOB, log_in
from tests.unit.broker.test_sasl_listeners import SETTINGS as PLAIN_LOGINS
from tests.unit.broker.transactional import find
from tests.unit.security.entries import Lists, entry

OPEN = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
}
"""Everybody may do everything, until a resource has entries."""
ANONYMOUS, TOPIC, OTHER, GROUP = "User:ANONYMOUS", "flights", "secret", "g"
REFUSED, ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE
REPEATS = 4


def rule(
    operation: Op,
    name: str = TOPIC,
    resource: AclResource = AclResource.TOPIC,
    permission: Permission = Permission.DENY,
) -> AclBinding:
    """An entry for a client that has not logged in; without a permission it denies."""
    return AclBinding(resource, name, ANONYMOUS, operation, permission)


@asynccontextmanager
async def at_open_broker(
    outside: Outside, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[RunningBroker, Peer, User]]:
    """A broker, a client, and the same client as who changes entries, over a connection."""
    async with running(outside, {**OPEN, **(settings or {})}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, TOPIC)
        await create_topic(peer, OTHER)
        yield broker, peer, User(connect(outside, broker))


async def test_a_repeated_produce_is_refused_once_it_is_denied(outside: Outside) -> None:
    """Requests that are answered without being decoded notice a change, in both directions."""
    async with at_open_broker(outside) as (_, peer, admin):

        async def codes() -> set[int]:
            return {(await produce(peer, TOPIC, batch(b"v"))).error_code for _ in range(REPEATS)}

        assert await codes() == {ALLOWED}
        await admin.create_acls(rule(Op.WRITE))
        assert await codes() == {REFUSED}
        await admin.delete_acls(ANONYMOUS)
        assert await codes() == {ALLOWED}


async def test_a_repeated_fetch_is_refused_once_it_is_denied(outside: Outside) -> None:
    """Also while the records are in the page cache."""
    async with at_open_broker(outside) as (_, peer, admin):
        await produce(peer, TOPIC, batch(b"v"))
        wanted = replace(fetch_request(TOPIC, 0), session_id=0, session_epoch=-1)

        async def codes() -> set[int]:
            return {(await fetch(peer, wanted)).error_code for _ in range(REPEATS)}

        assert await codes() == {ALLOWED}
        await admin.create_acls(rule(Op.READ))
        assert await codes() == {REFUSED}


async def test_a_repeated_commit_is_refused_once_it_is_denied(outside: Outside) -> None:
    """By the group, and by the topic."""
    async with at_open_broker(outside) as (_, peer, admin):
        await find(peer, 0)

        async def codes() -> set[int]:
            found = set()
            for offset in range(REPEATS):
                part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                request = OffsetCommitRequest(
                    group_id=GROUP,
                    generation_id_or_member_epoch=-1,
                    topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(part,)),),
                )
                answer = await peer.ask(
                    ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=8
                )
                found |= {each.error_code for each in answer.topics[0].partitions}
            return found

        assert await codes() == {ALLOWED}
        await admin.create_acls(rule(Op.READ, GROUP, AclResource.GROUP))
        assert await codes() == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
        await admin.delete_acls(ANONYMOUS)
        assert await codes() == {ALLOWED}
        await admin.create_acls(rule(Op.READ))
        assert await codes() == {REFUSED}


class _Remembered:
    """Stands for what answers repeated requests, once it has learned one."""

    made = 0
    taken = 1

    def __init__(self) -> None:
        _Remembered.made += 1
        self.learned = 0

    def learn(self, *_: object, **__: object) -> None:
        self.learned += 1

    def take(self, *_: object, **__: object) -> tuple[int, bytes] | None:
        return (1, b"answer") if self.learned else None


def test_what_is_remembered_is_forgotten_with_each_change_of_entries() -> None:
    """Between changes nothing is forgotten, so that most requests are not decoded."""
    _Remembered.made = 0
    lists = Lists(entry(Op.READ))
    repeats = GuardedRepeats(_Remembered, lists.authorizer)

    def take() -> object:
        return repeats.take(bytearray(), 0, 0, frame_bytes_max=1)

    def learn() -> None:
        header = RequestHeader(ApiKey.PRODUCE, 9, 1, "c")
        repeats.learn(header, HeartbeatRequest(), answer=None, frame=memoryview(b""))

    assert take() is None
    learn()
    assert take() == take() == (1, b"answer")
    assert _Remembered.made == 1
    lists.add(entry(Op.WRITE))
    assert take() is None
    learn()
    assert take() == (1, b"answer")
    assert _Remembered.made == 2


async def test_a_fetch_session_is_checked_again_with_each_request(outside: Outside) -> None:
    """Partitions that the request does not name are refused too, once they are denied."""
    async with at_open_broker(outside) as (_, peer, admin):
        for name in (TOPIC, OTHER):
            await produce(peer, name, batch(b"v"))
        topics = tuple(each for name in (TOPIC, OTHER) for each in fetch_request(name, 0).topics)

        async def ask(request: FetchRequest) -> FetchResponse:
            return await peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)

        def codes(answer: FetchResponse) -> dict[str, int]:
            return {each.topic: each.partitions[0].error_code for each in answer.responses}

        first = await ask(FetchRequest(max_bytes=2**20, topics=topics, session_epoch=0))
        assert codes(first) == {TOPIC: ALLOWED, OTHER: ALLOWED}
        await admin.create_acls(rule(Op.READ, OTHER))
        next_ = FetchRequest(max_bytes=2**20, session_id=first.session_id, session_epoch=1)
        assert codes(await ask(next_)) == {TOPIC: ALLOWED, OTHER: REFUSED}


async def test_a_fetch_that_waits_gets_no_records_that_were_denied_meanwhile(
    outside: Outside,
) -> None:
    """The right is asked for each time the partition is read."""
    async with at_open_broker(outside) as (broker, peer, admin):
        waiting = asyncio.ensure_future(
            fetch(peer, fetch_request(TOPIC, 0, max_wait_ms=60_000, min_bytes=1))
        )
        await outside.pass_time(1)
        allowed = rule(Op.WRITE, permission=Permission.ALLOW)
        await admin.create_acls(rule(Op.READ), allowed)
        produced = await produce(connect(outside, broker), TOPIC, batch(b"v"))
        assert produced.error_code == ALLOWED
        answer = await waiting
        assert (answer.error_code, answer.records) == (REFUSED, b"")


async def test_a_produce_with_acks_0_that_is_denied_closes_the_connection(
    outside: Outside,
) -> None:
    """There is no answer to tell it by, as with each other error."""
    async with at_open_broker(outside) as (_, peer, admin):
        await admin.create_acls(rule(Op.WRITE))
        request = produce_request(TOPIC, batch(b"v"), acks=0)
        peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        assert await peer.is_closed()


async def test_allowed_and_denied_topics_of_a_produce_with_acks_0(outside: Outside) -> None:
    """The allowed batch is in the log before the connection ends."""
    async with at_open_broker(outside) as (broker, peer, admin):
        await admin.create_acls(rule(Op.WRITE, OTHER))
        both = produce_request(TOPIC, batch(b"v"), acks=0)
        topics = both.topic_data + produce_request(OTHER, batch(b"v")).topic_data
        request = replace(both, topic_data=topics)
        peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
        assert await peer.is_closed()
        again = connect(outside, broker)
        assert (await produce(again, TOPIC, batch(b"v"))).base_offset == 1


async def test_parts_of_a_produce_are_refused_and_the_rest_is_appended(outside: Outside) -> None:
    """Each topic has its own error, or its offset."""
    async with at_open_broker(outside) as (_, peer, admin):
        await admin.create_acls(rule(Op.WRITE, OTHER))
        one = produce_request(TOPIC, batch(b"v"))
        topics = one.topic_data + produce_request(OTHER, batch(b"v")).topic_data
        answer = await peer.ask(
            ApiKey.PRODUCE,
            replace(one, topic_data=topics),
            ProduceResponse,
            version=BY_NAME_PRODUCE,
        )
        parts = {each.name: each.partition_responses[0] for each in answer.responses}
        assert {name: part.error_code for name, part in parts.items()} == {
            TOPIC: ALLOWED,
            OTHER: REFUSED,
        }
        assert (parts[TOPIC].base_offset, parts[OTHER].base_offset) == (0, -1)


@pytest.mark.parametrize("may_create", ["nobody", "topic", "cluster"])
async def test_a_topic_is_only_made_for_who_may_create_it(
    outside: Outside, may_create: str
) -> None:
    """With CREATE on the topic or the cluster; DESCRIBE alone makes nothing."""
    allow = Permission.ALLOW
    rights = {
        "nobody": [],
        "topic": [AclBinding(AclResource.TOPIC, "new", "User:u", Op.CREATE, allow)],
        "cluster": [AclBinding(AclResource.CLUSTER, "kafka-cluster", "User:u", Op.CREATE, allow)],
    }
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        describing = AclBinding(AclResource.TOPIC, "new", "User:u", Op.DESCRIBE, allow)
        await admin.create_acls(describing, *rights[may_create])
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name="new"),), allow_auto_topic_creation=True
        )
        [topic] = (await admin.other("u").ask(request, MetadataResponse)).topics
        is_made = "new" in broker.cluster.image.topics
        expected = REFUSED if may_create == "nobody" else ALLOWED
        assert (topic.error_code, is_made) == (expected, may_create != "nobody")


@pytest.mark.parametrize("may_create", [False, True])
async def test_a_name_like_that_of_a_hidden_topic_is_as_any_other(
    outside: Outside, *, may_create: bool
) -> None:
    """It cannot be created beside the other one, and a client is not told why."""
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        await create_topic(admin.peer, "secret_b")
        operations = (Op.DESCRIBE, Op.CREATE) if may_create else (Op.DESCRIBE,)
        await admin.create_acls(
            *(
                AclBinding(AclResource.TOPIC, name, "User:u", each, Permission.ALLOW)
                for each in operations
                for name in ("secret.b", "other.b")
            )
        )
        for name, is_made in (("secret.b", False), ("other.b", may_create)):
            request = MetadataRequest(
                topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=True
            )
            # The second time as those of whom the first is creating it.
            [topic] = (await admin.other("u").ask(request, MetadataResponse)).topics
            missing = REFUSED if not may_create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert topic.error_code == (ALLOWED if is_made else missing)
            request = replace(request, allow_auto_topic_creation=False)
            [topic] = (await admin.other("u").ask(request, MetadataResponse)).topics
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert topic.error_code == (ALLOWED if is_made else unknown)


async def test_version_0_of_metadata_does_not_show_all_where_nothing_is_left(
    outside: Outside,
) -> None:
    """An empty list means all topics there: what is denied must not become one."""
    async with at_open_broker(outside) as (_, peer, admin):
        await admin.create_acls(rule(Op.DESCRIBE, OTHER))
        request = MetadataRequest(topics=(MetadataRequestTopic(name=OTHER),))
        answer = await peer.ask(ApiKey.METADATA, request, MetadataResponse, version=0)
        assert [(each.name, each.error_code) for each in answer.topics] == [(OTHER, REFUSED)]


async def test_pages_of_topics_tell_nothing_of_those_that_are_denied(outside: Outside) -> None:
    """Neither the page nor its cursor, and the page is as long as without them."""
    async with at_open_broker(outside) as (_, peer, admin):
        for name in ("a", "b", "c"):
            await create_topic(peer, name)
        await admin.create_acls(rule(Op.DESCRIBE, "b"), rule(Op.DESCRIBE, OTHER))
        request = DescribeTopicPartitionsRequest(topics=(), response_partition_limit=1)
        names, cursors = [], []
        while True:
            page = await peer.ask(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, DescribeTopicPartitionsResponse
            )
            names += [each.name for each in page.topics]
            if page.next_cursor is None:
                break
            cursors.append(page.next_cursor.topic_name)
            request = replace(request, cursor=page.next_cursor)
        assert (names, cursors) == (["a", "c", TOPIC], ["c", TOPIC])


async def test_a_regular_expression_finds_what_the_member_may_describe(outside: Outside) -> None:
    """A topic that it may not describe is not assigned to it; a change of rights counts later.

    The expression is resolved again after `group.consumer.regex.refresh.interval.ms`.
    """
    refreshed = {"group.consumer.regex.refresh.interval.ms": "20000"}
    async with at_open_broker(outside, refreshed) as (broker, peer, admin):
        await find(peer, 0)
        await admin.create_acls(rule(Op.DESCRIBE, OTHER))
        epoch, owned = 0, tuple[TopicPartitions, ...]()

        async def beat_until(*names: str) -> None:
            """Send heartbeats until the member has these topics, and no others.

            What it has may be as before, or nothing, until the group is assigned again.
            """
            nonlocal epoch, owned
            topics = broker.cluster.image.topics
            before, due = owned, {topics[each].topic_id for each in names}
            for _ in range(40):
                request = ConsumerGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id="m",
                    member_epoch=epoch,
                    rebalance_timeout_ms=10_000,
                    subscribed_topic_names=None,
                    subscribed_topic_regex=f"{TOPIC}|{OTHER}",
                    topic_partitions=owned,
                )
                answer = await peer.ask(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse
                )
                assert answer.error_code == ALLOWED
                epoch = answer.member_epoch
                if answer.assignment is not None:
                    owned = tuple(
                        TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                        for each in answer.assignment.topic_partitions
                    )
                found = {each.topic_id for each in owned}
                if found == due:
                    return
                assert found <= {each.topic_id for each in before}
                await outside.pass_time(2)
            raise AssertionError(f"the member has not got {names}")

        await beat_until(TOPIC)
        await admin.delete_acls(ANONYMOUS)
        await beat_until(TOPIC, OTHER)
        await admin.create_acls(rule(Op.DESCRIBE, TOPIC))
        await beat_until(OTHER)


@pytest.mark.parametrize("version", [BY_NAME_PRODUCE, APIS[ApiKey.PRODUCE].last_version])
async def test_a_produce_to_no_name_or_to_an_unknown_id(outside: Outside, version: int) -> None:
    """Without rights an empty name is refused as others are, and an unknown id is unknown."""
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        topic_id = (await create_topic(admin.peer, TOPIC)).topic_id
        user = admin.other("u")

        async def code(name: str, id_: UUID) -> int:
            data = PartitionProduceData(index=0, records=batch(b"v"))
            topic = TopicProduceData(name=name, topic_id=id_, partition_data=(data,))
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=(topic,))
            answer = await user.ask(request, ProduceResponse, version=version)
            return answer.responses[0].partition_responses[0].error_code

        if version == BY_NAME_PRODUCE:
            assert await code("", NO_UUID) == await code(TOPIC, NO_UUID) == REFUSED
            return
        for unknown in (NO_UUID, UUID(int=7)):
            assert await code("", unknown) == ErrorCode.UNKNOWN_TOPIC_ID
        assert await code("", topic_id) == REFUSED
        await admin.create_acls(AclBinding(AclResource.TOPIC, TOPIC, "User:u", Op.WRITE))
        assert await code("", topic_id) == ALLOWED


@pytest.mark.parametrize("version", [BY_NAME_FETCH, APIS[ApiKey.FETCH].last_version])
async def test_a_fetch_of_no_name_or_of_an_unknown_id(outside: Outside, version: int) -> None:
    """The codes are those of Produce; what is refused has records of no bytes, and not none."""
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        topic_id = (await create_topic(admin.peer, TOPIC)).topic_id
        user = admin.other("u")

        async def code(name: str, id_: UUID) -> int:
            part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topic = FetchTopic(topic=name, topic_id=id_, partitions=(part,))
            request = FetchRequest(max_bytes=1000, topics=(topic,))
            answer = await user.ask(request, FetchResponse, version=version)
            [found] = answer.responses[0].partitions
            assert found.records == b""
            return found.error_code

        if version == BY_NAME_FETCH:
            assert await code("", NO_UUID) == await code(TOPIC, NO_UUID) == REFUSED
            return
        for unknown in (NO_UUID, UUID(int=7)):
            assert await code("", unknown) == ErrorCode.UNKNOWN_TOPIC_ID
        assert await code("", topic_id) == REFUSED
        await admin.create_acls(AclBinding(AclResource.TOPIC, TOPIC, "User:u", Op.READ))
        assert await code("", topic_id) == ALLOWED


async def test_a_request_of_many_names_is_checked_in_slices(outside: Outside) -> None:
    """Each name has its answer, in whichever way the request was checked."""
    async with at_open_broker(outside) as (_, peer, admin):
        await admin.create_acls(
            AclBinding(
                AclResource.TOPIC, "x", ANONYMOUS, Op.DESCRIBE, Permission.DENY,
                pattern=PatternType.PREFIXED,
            )
        )  # fmt: skip
        latest = (ListOffsetsPartition(partition_index=0, timestamp=-1),)
        names = [TOPIC, *(f"x{number}" for number in range(CHECKED_INLINE_MAX + 10))]
        request = ListOffsetsRequest(
            topics=tuple(ListOffsetsTopic(name=each, partitions=latest) for each in names)
        )
        answer = await peer.ask(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse)
        codes = {each.name: each.partitions[0].error_code for each in answer.topics}
        assert codes == {**dict.fromkeys(names, REFUSED), TOPIC: ALLOWED}


async def test_long_requests_of_each_form_are_checked_in_slices(outside: Outside) -> None:
    """Many topics of one group, and many topics of Metadata."""
    async with at_open_broker(outside) as (_, peer, admin):
        await find(peer, 0)
        await admin.create_acls(
            AclBinding(
                AclResource.TOPIC, "x", ANONYMOUS, Op.DESCRIBE, Permission.DENY,
                pattern=PatternType.PREFIXED,
            )
        )  # fmt: skip
        names = [TOPIC, *(f"x{number}" for number in range(CHECKED_INLINE_MAX + 10))]
        expected = {**dict.fromkeys(names, REFUSED), TOPIC: ALLOWED}
        topics = tuple(
            OffsetFetchRequestTopics(name=each, partition_indexes=(0,)) for each in names
        )
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        fetched = await peer.ask(
            ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=(group,)), OffsetFetchResponse, version=8
        )
        [answer] = fetched.groups
        assert {e.name: e.partitions[0].error_code for e in answer.topics} == expected
        wanted = tuple(MetadataRequestTopic(name=each) for each in names)
        described = await peer.ask(
            ApiKey.METADATA, MetadataRequest(topics=wanted), MetadataResponse
        )
        assert {e.name: e.error_code for e in described.topics} == expected


async def test_many_entries_are_described(outside: Outside) -> None:
    """More than are put into an answer on the event loop, and each resource once."""
    count = CHECKED_INLINE_MAX + 10
    async with at_open_broker(outside) as (_, peer, admin):
        for at in range(0, count, 100):
            await admin.create_acls(
                *(rule(Op.READ, f"t{number // 2}") for number in range(at, at + 100, 2)),
                *(rule(Op.WRITE, f"t{number // 2}") for number in range(at, at + 100, 2)),
            )
        request = DescribeAclsRequest(
            resource_type_filter=2, resource_name_filter=None, pattern_type_filter=1,
            principal_filter=None, host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        found = await peer.ask(ApiKey.DESCRIBE_ACLS, request, DescribeAclsResponse)
        assert len({each.resource_name for each in found.resources}) == len(found.resources)
        assert {len(each.acls) for each in found.resources} == {2}
        assert len(found.resources) >= count // 2


async def test_entries_are_there_after_a_restart(outside: Outside) -> None:
    """They are records of the metadata log, and count from the first request on."""
    allowed = AclBinding(AclResource.TOPIC, TOPIC, "User:u", Op.WRITE)
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        await create_topic(admin.peer, TOPIC)
        await admin.create_acls(allowed)
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        request = produce_request(TOPIC, batch(b"v"))
        for name, code in (("u", ALLOWED), ("v", REFUSED)):
            answer = await admin.other(name).ask(request, ProduceResponse, version=BY_NAME_PRODUCE)
            assert answer.responses[0].partition_responses[0].error_code == code
        everything = DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
            principal_filter=None, host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        described = await admin.ask(everything, DescribeAclsResponse)
        [resource] = described.resources
        [acl] = resource.acls
        assert (resource.resource_name, acl.principal, acl.host, acl.operation) == (
            TOPIC, "User:u", "*", Op.WRITE,
        )  # fmt: skip


async def test_rights_are_those_of_who_has_logged_in(outside: Outside) -> None:
    """A connection has the name of its login, also for requests that are not decoded."""
    settings = {
        **PLAIN_LOGINS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:alice",
    }
    async with running(outside, settings) as broker:
        alice, bob, carol = (connect(outside, broker) for _ in range(3))
        await log_in(alice, ALICE)
        await log_in(bob, BOB)
        assert (await create_topic(alice, TOPIC)).error_code == ALLOWED
        writing = AclBinding(AclResource.TOPIC, TOPIC, "User:bob", Op.WRITE)

        async def codes() -> set[int]:
            return {(await produce(bob, TOPIC, batch(b"v"))).error_code for _ in range(REPEATS)}

        assert await codes() == {REFUSED}
        await User(alice).create_acls(writing)
        assert await codes() == {ALLOWED}
        assert (await create_topic(bob, "new")).error_code == REFUSED
        # Nobody is anonymous on a listener that asks for a login.
        carol.send(ApiKey.METADATA, MetadataRequest(topics=None))
        assert await carol.is_closed()
