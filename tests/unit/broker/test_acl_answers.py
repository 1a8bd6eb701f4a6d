"""Our broker's answers to clients with and without rights are Apache Kafka's, for every API."""

from uuid import UUID

from tailrace.protocol.apis import APIS, ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.security.needs import NEEDS
from tailrace.testing import Outside, Peer
from tests.unit.broker.acl_answers import (
    ANSWERS,
    GROUP,
    HEADER,
    HIDDEN,
    SECRET,
    TOPIC,
    cells,
    line,
    questions,
    why_other,
)
from tests.unit.broker.brokers import connect, create_topic
from tests.unit.broker.principals import User, secured
from tests.unit.broker.transactional import find

CREATED_PER_REQUEST = 100
SMALL = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
OPEN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
"""APIs that need no right, and that no question is about."""


async def prepared(peer: Peer) -> dict[str, UUID]:
    """Make the topics and groups that questions name; returns the ids of the topics."""
    ids = {each: (await create_topic(peer, each)).topic_id for each in (TOPIC, SECRET)}
    for kind in (0, 1):
        await find(peer, kind)
    offset = (OffsetCommitRequestPartition(partition_index=0, committed_offset=0),)
    for group in (GROUP, HIDDEN):
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=tuple(OffsetCommitRequestTopic(name=each, partitions=offset) for each in ids),
        )
        answer = await peer.ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, version=8)
        codes = {part.error_code for each in answer.topics for part in each.partitions}
        assert codes == {ErrorCode.NONE}, answer
    return ids


async def test_each_cell_is_answered_as_kafka_does(outside: Outside) -> None:
    """Every API with all rights, without each of them, and with each of them denied."""
    header, *expected = ANSWERS.read_text().splitlines()
    assert header == HEADER
    async with secured(outside, SMALL) as broker:
        peer = connect(outside, broker)
        ids = await prepared(peer)
        admin, asked = User(peer), list(cells(ids))
        bindings = [binding for each in asked for binding in each.bindings]
        for at in range(0, len(bindings), CREATED_PER_REQUEST):
            await admin.create_acls(*bindings[at : at + CREATED_PER_REQUEST])
        found = []
        for each in asked:
            user = User(peer, each.principal.partition(":")[2])
            question = each.question
            try:
                answer = await user.answer(question.request, version=question.version)
            except EOFError:
                peer, answer = connect(outside, broker), None
            found.append(line(each, answer))
    kept = [each for each in expected if why_other(each) is None]
    assert [each for each in found if why_other(each) is None] == kept


def test_each_api_that_needs_a_right_has_a_question() -> None:
    """An API that is served and guarded cannot be left out of the comparison with Kafka."""
    ids = {TOPIC: UUID(int=1), SECRET: UUID(int=2)}
    asked = {api_of(type(each.request)).key for each in questions(ids)}
    guarded = {key for key in APIS if NEEDS[ApiKey(key)]}
    assert guarded - asked == set()
    assert OPEN & guarded == set()
