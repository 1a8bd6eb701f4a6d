"""Arguments that a consumer cannot take: one clear error each, before anything has changed."""

import asyncio
import inspect
import re
from typing import Any

import pytest

from tailrace.client.consumer import AsyncConsumer, Consumer
from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.errors import (
    ConcurrentCallError,
    InvalidTopicNameError,
    SubscriptionError,
    TopicAuthorizationError,
)
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import Outside
from tests.unit.client.consumer.leaders import Leaders
from tests.unit.client.consumer.stage import T0, T1

NOWHERE: dict[str, Any] = {
    "bootstrap_servers": "localhost:1",
    "group_id": "g",
    "enable_auto_commit": False,
    "default_api_timeout_ms": 0,
}

Case = tuple[str, tuple[Any, ...], dict[str, Any], str]
"""A method, its arguments, and the sentence that it has to raise."""

SUBSCRIBING: list[Case] = [
    ("subscribe", (3,), {}, "topics is an int; give the name of a topic"),
    ("subscribe", (b"t",), {}, "topics is a bytes; give the name"),
    ("subscribe", (["t", 3],), {}, "a topic is an int (3); give its name as a str"),
    ("subscribe", (["t", None],), {}, "a topic is a NoneType (None); give its name"),
    ("subscribe", ([],), {}, "subscribe needs a topic"),
    ("subscribe", ("",), {}, "a topic is an empty str; give its name"),
    ("subscribe", (["t", ""],), {}, "a topic is an empty str"),
    ("subscribe", (), {}, "subscribe to topics, or to a pattern"),
    ("subscribe", ("t",), {"pattern": "t"}, "subscribe to topics, or to a pattern"),
    ("subscribe", (), {"pattern": 3}, "pattern is an int; give a regular expression as a str"),
    ("subscribe", (), {"pattern": b"t"}, "pattern is a bytes; give a regular expression"),
    ("subscribe", (), {"pattern": re.compile(b"t")}, "pattern is a Pattern of a bytes; give"),
    ("subscribe", (), {"pattern": ""}, "pattern is empty and matches no topic"),
    ("subscribe", (), {"pattern": "("}, "pattern '(' is no regular expression of Python's re"),
    ("subscribe", ("t",), {"on_assigned": 3}, "on_assigned is an int; give a function"),
    ("subscribe", ("t",), {"on_revoked": "f"}, "on_revoked is a str; give a function"),
    ("subscribe", ("t",), {"on_lost": []}, "on_lost is a list; give a function"),
]

PLACE = "give TopicPartition(topic, number)"

WRONG: list[Case] = [
    ("assign", ("t",), {}, f"partitions is a str ('t'); {PLACE}"),
    ("assign", (3,), {}, f"partitions is an int (3); {PLACE}"),
    ("assign", (None,), {}, f"partitions is a NoneType (None); {PLACE}"),
    ("assign", ([T0, 3],), {}, f"one of partitions is an int (3); {PLACE}"),
    ("assign", ([T0, None],), {}, f"one of partitions is a NoneType (None); {PLACE}"),
    ("assign", (["t"],), {}, f"one of partitions is a str ('t'); {PLACE}"),
    ("assign", (("t", "0"),), {}, f"one of partitions is a str ('t'); {PLACE}"),
    ("assign", ([("t", True)],), {}, f"one of partitions is a tuple (('t', True)); {PLACE}"),
    ("assign", (("t", -1),), {}, "partitions are counted from 0"),
    ("assign", ([("", 0)],), {}, "a topic has a name"),
    ("seek", ("t", 3), {}, f"partition is a str ('t'); {PLACE}"),
    ("seek", (3, 3), {}, f"partition is an int (3); {PLACE}"),
    ("seek", ([T0, T1], 3), {}, f"partition is a list ({[T0, T1]}); {PLACE}"),
    ("seek", (T0, "x"), {}, "offset is a str ('x'); give an int or OffsetAndMetadata"),
    ("seek", (T0, None), {}, "offset is a NoneType (None); give an int"),
    ("seek", (T0, 1.5), {}, "offset is a float (1.5); give an int"),
    ("seek", (T0, True), {}, "offset is a bool (True); give an int"),
    ("seek", (T0, ("a", "b")), {}, "offset is a tuple (('a', 'b')); give an int"),
    ("seek", (T0, -1), {}, "offset -1 is negative; seek_to_beginning"),
    ("seek_to_beginning", (3,), {}, f"partitions is an int (3); {PLACE}"),
    ("seek_to_end", ("t",), {}, f"partitions is a str ('t'); {PLACE}"),
    ("seek_to_time", ("x",), {}, "the time for t-0 is a str; give ms since 1970"),
    ("seek_to_time", (3, 4), {}, f"partitions is an int (4); {PLACE}"),
    ("pause", (3,), {}, f"partitions is an int (3); {PLACE}"),
    ("pause", (None,), {}, f"partitions is a NoneType (None); {PLACE}"),
    ("resume", (["t"],), {}, f"one of partitions is a str ('t'); {PLACE}"),
    ("position", (3,), {}, f"partition is an int (3); {PLACE}"),
    ("position", ("t",), {}, f"partition is a str ('t'); {PLACE}"),
    ("position", (T0, "x"), {}, "timeout is a str ('x'); give seconds as a number"),
    ("poll", ("x",), {}, "timeout is a str ('x'); give seconds as a number"),
    ("poll", (float("nan"),), {}, "timeout is not a number (nan); give seconds, or None"),
    ("poll_columns", ([],), {}, "timeout is a list ([]); give seconds as a number"),
    ("to_arrow", ("x",), {}, "timeout is a str ('x'); give seconds as a number"),
    ("to_arrow", (), {"bytes_max": "1"}, "bytes_max is a str ('1'); give a number of bytes"),
    ("commit", (3,), {}, "offsets is an int, or has one; give a record, records, a mapping"),
    ("commit", ("t",), {}, "offsets is a str, or has one; give a record"),
    ("commit", (T0,), {}, "offsets is a TopicPartition, or has one; give a record"),
    ("commit", ([3],), {}, "offsets is an int, or has one; give a record"),
    ("commit", ({"t": 3},), {}, f"the partition of an offset is a str ('t'); {PLACE}"),
    ("commit", ({T0: "x"},), {}, "partition=0) is a str ('x'); give an int or OffsetAndMetadata"),
    ("commit", ({T0: None},), {}, "is a NoneType (None); give an int or OffsetAndMetadata"),
    ("commit", ({T0: (1, "a")},), {}, "is a tuple ((1, 'a')); give an int or OffsetAndMetadata"),
    ("commit", ({T0: (1, 0, 3)},), {}, "is a tuple ((1, 0, 3)); give an int or OffsetAndMetadata"),
    ("commit", ({T0: -1},), {}, "t-0: offset -1 cannot be committed"),
    ("commit", (), {"timeout": "x"}, "timeout is a str ('x'); give seconds"),
    ("committed", (3,), {}, f"partitions is an int (3); {PLACE}"),
    ("end_offsets", ("t",), {}, f"partitions is a str ('t'); {PLACE}"),
    ("beginning_offsets", (None,), {}, f"partitions is a NoneType (None); {PLACE}"),
    ("offsets_for_times", (3,), {}, "timestamps is an int; give a mapping of partitions to ms"),
    ("offsets_for_times", ([T0],), {}, "timestamps is a list; give a mapping of partitions to ms"),
    ("offsets_for_times", ({"t": 1},), {}, f"partition is a str ('t'); {PLACE}"),
    ("offsets_for_times", ({T0: "x"},), {}, "the time for t-0 is a str; give ms since 1970"),
    ("partitions_for", (3,), {}, "topic is an int (3); give its name as a str"),
    ("partitions_for", (["t"],), {}, "topic is a list (['t']); give its name"),
    ("partitions_for", ("",), {}, "topic is an empty str; give its name"),
    ("enforce_rebalance", (3,), {}, "reason is an int; give a str"),
    ("list_topics", ("x",), {}, "timeout is a str ('x'); give seconds"),
    ("lag", ("x",), {}, "timeout is a str ('x'); give seconds"),
    ("unsubscribe", ("x",), {}, "timeout is a str ('x'); give seconds"),
    ("close", ("x",), {}, "timeout is a str ('x'); give seconds"),
]


def name_of(case: object) -> str:
    """The name of a call in the table."""
    return case if isinstance(case, str) and case.isidentifier() else ""


EACH_CASE = pytest.mark.parametrize(
    ("method", "given", "named", "sentence"), SUBSCRIBING + WRONG, ids=name_of
)


@EACH_CASE
def test_a_wrong_argument_is_named_with_what_to_give(
    method: str, given: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    """One sentence says so, and the consumer goes on as if it had not been called."""
    with Consumer(**NOWHERE) as consumer:
        prepare(consumer, method)
        with pytest.raises((TypeError, ValueError), match=re.escape(sentence)) as caught:
            getattr(consumer, method)(*given, **named)
        check(consumer, method, caught.value)


@EACH_CASE
async def test_the_consumer_of_an_event_loop_says_the_same(
    outside: Outside, method: str, given: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    """A call that is awaited raises when it is awaited, and changes nothing either."""
    async with AsyncConsumer(**NOWHERE, runtime=outside.runtime) as consumer:
        prepare(consumer, method)
        with pytest.raises((TypeError, ValueError), match=re.escape(sentence)) as caught:
            await getattr(consumer, method)(*given, **named)
        check(consumer, method, caught.value)


def prepare(consumer: Consumer | AsyncConsumer, method: str) -> None:
    """Have a position, if the call is not about the subscription itself."""
    if method != "subscribe":
        consumer.assign(T0)
        consumer.seek(T0, 5)


def check(consumer: Consumer | AsyncConsumer, method: str, error: Exception) -> None:
    """The consumer is as `prepare` has left it."""
    assert "\n" not in str(error)
    assert consumer.assignment() == (set() if method == "subscribe" else {T0})
    assert consumer.subscription() == set()
    assert consumer.paused() == set()
    positions = [each.position for each in consumer.statistics().partitions.values()]
    assert positions == ([] if method == "subscribe" else [5])


async def test_an_expression_of_the_broker_is_not_compiled_here(outside: Outside) -> None:
    """With the consumer protocol a text is RE2, which has forms that Python has not."""
    settings = NOWHERE | {"group_protocol": "consumer"}
    async with AsyncConsumer(**settings, runtime=outside.runtime) as consumer:
        consumer.subscribe(pattern=r"\pN+")


async def test_a_partition_has_several_forms(outside: Outside) -> None:
    """A tuple is a partition, and each call takes one, or several in any iterable."""
    cluster = Leaders(outside, partitions=2)
    async with cluster.consumer() as consumer:
        for given in (T0, ("t", 0), [T0], {("t", 0)}, iter([T0, ("t", 0)])):
            consumer.assign(given)
            assert consumer.assignment() == {T0}
        consumer.assign([])
        assert consumer.assignment() == set()
        consumer.assign([T0, T1])
        consumer.pause(T0, ("t", 1))
        assert consumer.paused() == {T0, T1}


CALLS = [
    ("poll", ()),
    ("position", (T0,)),
    ("partitions_for", ("t",)),
    ("list_topics", ()),
    ("beginning_offsets", (T0,)),
    ("end_offsets", (T0,)),
    ("offsets_for_times", ({T0: 0},)),
    ("commit", ({T0: 3},)),
    ("committed", (T0,)),
]


@pytest.mark.parametrize(("method", "given"), CALLS, ids=name_of)
async def test_a_login_that_fails_ends_each_call(
    outside: Outside, method: str, given: tuple[Any, ...]
) -> None:
    """The call raises what the broker has said, long before its timeout."""
    cluster = Leaders(outside)
    consumer = cluster.consumer(
        group_id="g",
        enable_auto_commit=False,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="user",
        sasl_password="wrong",
    )
    consumer.assign(T0)
    with pytest.raises(Exception, match=r"(?i)login|authenticat|password"):
        await getattr(consumer, method)(*given)
    assert outside.loop.time() < 30
    await consumer.close(0)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopicNameError),
    ],
    ids=["denied", "invalid"],
)
async def test_a_topic_that_cannot_be_used_is_told_at_once(
    outside: Outside, code: ErrorCode, kind: type[Exception]
) -> None:
    """Neither `partitions_for` nor a poll waits for a topic that asking again does not give."""
    cluster = Leaders(outside)
    cluster.topic_errors["t"] = code
    async with cluster.consumer() as consumer:
        with pytest.raises(kind, match=code.name):
            await consumer.partitions_for("t")
        consumer.assign(T0)
        with pytest.raises(kind, match=code.name):
            await consumer.poll(60)
        assert outside.loop.time() < 5


async def test_a_poll_after_an_empty_assignment_is_an_error(outside: Outside) -> None:
    """There is nothing to wait for, and the error says what to call."""
    async with Leaders(outside).consumer() as consumer:
        consumer.assign(T0)
        consumer.assign([])
        with pytest.raises(SubscriptionError, match="call subscribe with topics, or assign"):
            await consumer.poll()


async def test_a_consumer_without_a_group_has_no_offsets(outside: Outside) -> None:
    """Each call that needs a group says that `group.id` has to be set."""
    async with Leaders(outside).consumer() as consumer:
        consumer.assign(T0)
        with pytest.raises(SubscriptionError, match=r"set group\.id"):
            await consumer.commit({T0: 1})
        with pytest.raises(SubscriptionError, match=r"set group\.id"):
            await consumer.committed(T0)
        with pytest.raises(SubscriptionError, match=r"set group\.id"):
            consumer.group_metadata()
        with pytest.raises(SubscriptionError, match=r"set group\.id"):
            consumer.enforce_rebalance()


def test_a_group_of_spaces_is_refused() -> None:
    """It is not taken for no group; an empty name is none."""
    with pytest.raises(ConfigError, match=r"group\.id: it has only spaces"):
        Consumer(bootstrap_servers="localhost:1", group_id="  ")
    assert parse_consumer_config({"bootstrap.servers": "a:1", "group.id": ""}).group_id is None


async def test_two_polls_at_once_are_refused(outside: Outside) -> None:
    """The second task gets an error, and the first its records."""
    cluster = Leaders(outside)
    async with cluster.consumer() as consumer:
        consumer.assign(T0)
        first = asyncio.ensure_future(consumer.poll(60))
        await outside.pass_time(1)
        with pytest.raises(ConcurrentCallError, match="another thread or task polls"):
            await consumer.poll()
        cluster.logs[T0].write(1)
        assert len(await first) == 1


def test_the_table_has_every_call_with_an_argument() -> None:
    """No public method of a consumer that takes something is left out."""
    methods = {
        name
        for name, each in inspect.getmembers(Consumer, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(each).parameters) > 1
    }
    assert methods == {method for method, *_ in SUBSCRIBING + WRONG}
    assert TopicPartition("t", 0) == T0
