"""Guards of APIs whose answers have names that the request does not have."""

import asyncio
from typing import Any
from uuid import UUID

from tailrace.handlers.guards import Guard, guarded
from tailrace.handlers.special_guards import CHECKS, LONG
from tailrace.protocol.answers import Deferred, LongAnswer
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import (
    consumer_group_describe,
    describe_transactions,
    list_transactions,
    metadata,
    produce,
)
from tailrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from tailrace.security.acls import AclOperation as Op
from tailrace.security.acls import AclResource
from tailrace.security.needs import NEEDS
from tailrace.testing import Outside
from tests.unit.security.entries import Lists, entry, request_of

TOPIC, SECRET = "flights", "secret"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handled(lists: Lists, request: Message, answer: Any) -> Any:
    """The guarded answer to a request of `User:alice`, which the handler answers so."""
    key = ApiKey(api_of(type(request)).key)
    guard = Guard(
        key,
        lists.authorizer,
        NEEDS[key],
        topic_name=lambda _: None,
        has_topic=lambda _: True,
    )
    handle = guarded(lambda *_: answer, guard, checks=CHECKS, long=LONG)
    return handle(request_of(api=key), request)


def test_a_transaction_shows_the_topics_that_the_client_may_describe() -> None:
    """The others are left out of it, and other transactions are refused."""
    lists = Lists(
        entry(Op.DESCRIBE, "tx", resource=AclResource.TRANSACTIONAL_ID), entry(Op.READ, TOPIC)
    )
    state = describe_transactions.TransactionState(
        transactional_id="tx",
        topics=tuple(
            describe_transactions.TopicData(topic=each, partitions=(0,)) for each in (TOPIC, SECRET)
        ),
    )
    found = handled(
        lists,
        describe_transactions.DescribeTransactionsRequest(transactional_ids=("tx", "other")),
        describe_transactions.DescribeTransactionsResponse(transaction_states=(state,)),
    )
    shown, refused = found.transaction_states
    assert [each.topic for each in shown.topics] == [TOPIC]
    assert (refused.transactional_id, refused.error_code) == (
        "other", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )  # fmt: skip


def test_lists_have_the_transactions_that_the_client_may_describe() -> None:
    """The others are left out without an error."""
    lists = Lists(entry(Op.WRITE, "tx", resource=AclResource.TRANSACTIONAL_ID))
    states = tuple(
        list_transactions.TransactionState(transactional_id=each) for each in ("tx", "other")
    )
    found = handled(
        lists,
        list_transactions.ListTransactionsRequest(),
        list_transactions.ListTransactionsResponse(transaction_states=states),
    )
    assert [each.transactional_id for each in found.transaction_states] == ["tx"]


def test_a_group_with_topics_that_may_not_be_described_is_refused() -> None:
    """All of it, since its members would show the topics (KIP-848)."""
    lists = Lists(
        *(entry(Op.DESCRIBE, each, resource=AclResource.GROUP) for each in ("g", "h")),
        entry(Op.DESCRIBE, TOPIC),
    )

    def group(name: str, topic: str) -> consumer_group_describe.DescribedGroup:
        part = consumer_group_describe.TopicPartitions(topic_name=topic, partitions=(0,))
        assigned = consumer_group_describe.Assignment(topic_partitions=(part,))
        member = consumer_group_describe.Member(member_id="m", target_assignment=assigned)
        return consumer_group_describe.DescribedGroup(group_id=name, members=(member,))

    found = handled(
        lists,
        consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=("g", "h", "i")),
        consumer_group_describe.ConsumerGroupDescribeResponse(
            groups=(group("g", TOPIC), group("h", SECRET))
        ),
    )
    assert {each.group_id: (each.error_code, len(each.members)) for each in found.groups} == {
        "g": (ErrorCode.NONE, 1),
        "h": (REFUSED, 0),
        "i": (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0),
    }


def test_authorized_operations_are_those_of_the_client() -> None:
    """They are given if they are asked for, and with no group that has an error."""
    lists = Lists(*(entry(Op.READ, each, resource=AclResource.GROUP) for each in ("g", "lost")))
    answer = DescribeGroupsResponse(
        groups=(
            DescribedGroup(group_id="g"),
            DescribedGroup(group_id="lost", error_code=ErrorCode.NOT_COORDINATOR),
        )
    )
    request = DescribeGroupsRequest(groups=("g", "lost"), include_authorized_operations=True)
    found = handled(lists, request, answer)
    assert [each.authorized_operations for each in found.groups] == [
        1 << Op.READ | 1 << Op.DESCRIBE, -(2**31),
    ]  # fmt: skip


async def test_answers_of_all_kinds_are_completed(outside: Outside) -> None:  # noqa: ARG001
    """At once, later, after others have acknowledged it, and those that are made in slices."""
    lists = Lists(entry(Op.WRITE, TOPIC))
    request = produce.ProduceRequest(
        acks=1,
        topic_data=tuple(produce.TopicProduceData(name=each) for each in (TOPIC, SECRET)),
    )
    answer = produce.ProduceResponse(responses=(produce.TopicProduceResponse(name=TOPIC),))

    async def later() -> Any:
        return answer

    def names(found: Any) -> list[str]:
        return [each.name for each in found.responses]

    both = [TOPIC, SECRET]
    assert names(handled(lists, request, answer)) == both
    assert names(await handled(lists, request, later())) == both
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    deferred = handled(lists, request, Deferred([done], lambda: answer, end=lambda: None))
    assert isinstance(deferred, Deferred)
    assert names(deferred.take()) == both
    long = handled(lists, request, LongAnswer(lambda: answer))
    assert isinstance(long, LongAnswer)
    made: Any = long.make()
    assert names(await made) == both


def test_what_is_wholly_allowed_reaches_the_handler_as_it_came() -> None:
    """The answer is the handler's own object: nothing was taken apart."""
    lists = Lists(entry(Op.WRITE, TOPIC))
    request = produce.ProduceRequest(topic_data=(produce.TopicProduceData(name=TOPIC),))
    answer = produce.ProduceResponse()
    assert handled(lists, request, answer) is answer


def test_an_id_of_no_topic_is_left_to_the_handler() -> None:
    """Nobody may learn more by it, and the handler says that there is none."""
    wanted = metadata.MetadataRequestTopic(name=None, topic_id=UUID(int=5))
    missing = metadata.MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=wanted.topic_id
    )
    found = handled(
        Lists(),
        metadata.MetadataRequest(topics=(wanted,)),
        metadata.MetadataResponse(topics=(missing,)),
    )
    assert [each.error_code for each in found.topics] == [ErrorCode.UNKNOWN_TOPIC_ID]
