"""Brokers that send anything but answers: a clear error, bounded memory, and the next attempt."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.nodes import DisconnectedError, MalformedAnswerError
from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.protocol.messages.metadata import MetadataResponse
from tests.unit.client.nodes.stand_in import METADATA, stage

ANSWER = frames.encode_response(APIS[ApiKey.METADATA], METADATA, version=13, correlation_id=1)
"""The right answer of a broker to the first request after ApiVersions."""


def outcome_of(data: bytes, *, ends: bool = False) -> list[object]:
    """Return the outcomes of two requests when the broker sends `data` and perhaps hangs up."""
    with stage() as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node, timeout_ms=1000)
            client.ask(node, timeout_ms=1000)
            await client.settle()
            broker.channel.send(data)
            if ends:
                broker.channel.close()
            await client.pass_time(400)
            assert len(client.outcomes) == 2
            assert not client.nodes.is_ready(node.id, client.now)
            await client.become_ready(node)

        outside.run(main())
        return list(client.outcomes)


@pytest.mark.parametrize(
    "size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1], ids=["-1", "min", "limit", "max"]
)
def test_a_size_that_no_frame_has_ends_the_connection(size: int) -> None:
    """A negative size, and one above the limit, is refused before anything is allocated."""
    for outcome in outcome_of(struct.pack(">i", size)):
        assert isinstance(outcome, MalformedAnswerError)
        assert str(size) in str(outcome)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "security.protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "a frame claims"),
    ],
    ids=["TLS", "HTTP", "SSH"],
)
def test_another_protocol_is_recognised(data: bytes, hint: str) -> None:
    """The error of a port that speaks TLS or HTTP says so, unlike that of random bytes."""
    for outcome in outcome_of(data):
        assert isinstance(outcome, MalformedAnswerError)
        assert hint in str(outcome)


@pytest.mark.parametrize("correlation_id", [0, 2, -1, 2**31 - 1])
def test_an_answer_to_another_request_ends_the_connection(correlation_id: int) -> None:
    """Answers come in the order of the requests; with another id nothing can be believed."""
    api = APIS[ApiKey.METADATA]
    data = frames.encode_response(api, METADATA, version=13, correlation_id=correlation_id)
    for outcome in outcome_of(data):
        assert isinstance(outcome, MalformedAnswerError)
        assert "1 is due" in str(outcome)


def test_a_surplus_answer_closes_the_connection() -> None:
    """A third answer to two requests closes the connection."""
    second, third = (
        frames.encode_response(APIS[ApiKey.METADATA], METADATA, version=13, correlation_id=number)
        for number in (2, 3)
    )
    assert outcome_of(ANSWER + second + third) == [METADATA, METADATA]


@pytest.mark.parametrize("size", [0, 3, 4, len(ANSWER) - 5])
def test_a_frame_that_ends_early_is_refused(size: int) -> None:
    """A whole frame whose answer is cut short is malformed, and all waiting requests fail."""
    data = struct.pack(">i", size) + ANSWER[4 : 4 + size]
    for outcome in outcome_of(data):
        assert isinstance(outcome, MalformedAnswerError)


def test_a_byte_after_an_answer_to_metadata_is_ignored() -> None:
    """The mock cluster of librdkafka appends one; other answers may have none (`frames`)."""
    data = struct.pack(">i", len(ANSWER) - 3) + ANSWER[4:] + b"\0"
    first, second = outcome_of(data)
    assert first == METADATA
    assert isinstance(second, DisconnectedError)


@pytest.mark.parametrize("size", range(0, len(ANSWER), 3))
def test_an_answer_that_is_cut_off_is_no_answer(size: int) -> None:
    """Wherever the broker hangs up inside of an answer, both requests fail as disconnected."""
    assert [type(each) for each in outcome_of(ANSWER[:size], ends=True)] == [DisconnectedError] * 2


@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_outcome(data: bytes) -> None:
    """Whatever a broker sends, each request has one outcome in its time, and the client goes on."""
    assert len(outcome_of(data)) == 2


@given(st.integers(0, 2**32))
def test_any_damage_to_an_answer_ends_in_an_outcome(seed: int) -> None:
    """An answer with some bytes changed is an answer or an error, never a hang or a crash."""
    chance = random.Random(seed)
    data = bytearray(ANSWER)
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    assert len(outcome_of(bytes(data))) == 2


def test_a_broker_cannot_stop_a_client_for_days() -> None:
    """A throttle time of 24 days is kept to for five minutes."""
    endless = MetadataResponse(throttle_time_ms=2**31 - 1)
    with stage() as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node)
            await client.settle()
            broker.asked[0].answer(endless)
            await client.pass_time(299)
            assert not client.nodes.is_ready(node.id, client.now)
            await client.pass_time(2)
            assert client.nodes.is_ready(node.id, client.now)

        outside.run(main())


@given(st.binary(max_size=100))
def test_any_bytes_during_setup_end_in_a_failure(data: bytes) -> None:
    """Instead of its versions a broker may send anything: the attempt fails within its time."""
    with stage() as (outside, broker, client):
        broker.rules[ApiKey.API_VERSIONS] = lambda asked: asked.connection.send(data)

        async def main() -> None:
            node = broker.node()
            client.nodes.connect(node, client.now)
            await client.pass_time(13)
            assert client.nodes.failure(node.id) is not None
            assert not client.nodes.is_ready(node.id, client.now)

        outside.run(main())


def test_memory_follows_what_has_arrived() -> None:
    """A frame that claims 100 MiB and sends little costs little, and times out."""
    with stage() as (outside, broker, client):

        async def main() -> None:
            node = broker.node()
            await client.become_ready(node)
            client.ask(node, timeout_ms=1000)
            await client.settle()
            broker.channel.send(struct.pack(">i", FRAME_BYTES_MAX) + bytes(100_000))
            tracemalloc.start()
            await client.settle()
            held, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert 100_000 < held <= peak < 1_000_000
            await client.pass_time(2)
            assert isinstance(client.outcomes[0], DisconnectedError)

        outside.run(main())
