"""Requests to the active controller, over a controller that a test scripts."""

import asyncio
import logging

import pytest

from tailrace.broker.kraft.channel import (
    ControllerChannel,
    Controllers,
    ForwardRefusedError,
    NoControllerError,
)
from tailrace.client.errors import AuthenticationError, UnsupportedBrokerError
from tailrace.client.nodes import Node
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import encode_request, encode_response
from tailrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tailrace.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.testing import Outside
from tests.unit.broker.kraft.scripted import (
    CLIENT,
    LOGIN,
    SILENCE,
    ScriptedController,
    channel_to,
    refuse_logins,
    standby,
)

REQUEST = AllocateProducerIdsRequest(broker_id=1, broker_epoch=7)
ANSWER = AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=1000)
LOST = "controllers_lost"
BACK = "controllers_back"


def controller(outside: Outside, node_id: int = 3000) -> ScriptedController:
    """A controller that is the active one."""
    made = ScriptedController(outside, node_id)
    made.answers[AllocateProducerIdsRequest] = lambda _: ANSWER
    return made


async def ask(channel: ControllerChannel, timeout_ms: int = 10_000) -> int:
    """The first producer id of the active controller's answer."""
    answer = await channel.ask(REQUEST, AllocateProducerIdsResponse, timeout_ms=timeout_ms)
    return answer.producer_id_start


def events(caplog: pytest.LogCaptureFixture, *names: str) -> list[str]:
    """The log lines of these events, by their names alone."""
    return [word for each in caplog.messages if (word := each.split()[0]) in names]


async def test_the_active_controller_is_found_among_all(outside: Outside) -> None:
    """A standby says that it is none, and the next is asked at once."""
    first, second = controller(outside, 3000), controller(outside, 3001)
    first.answers[AllocateProducerIdsRequest] = standby(AllocateProducerIdsRequest)
    known, channel = channel_to(outside, first, second)
    assert await ask(channel) == 1000
    assert known.active == second.node
    assert await ask(channel) == 1000
    assert (len(first.requests), len(second.requests)) == (1, 2)
    assert outside.loop.time() < 0.01
    channel.close()


async def test_controllers_that_have_not_started_yet_are_awaited(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster that starts as a whole has lost nothing, and the log warns of nothing."""
    caplog.set_level(logging.INFO)
    first = controller(outside)
    first.kill()
    _, channel = channel_to(outside, first)
    asking = asyncio.ensure_future(ask(channel, 60_000))
    await outside.pass_time(10)
    assert events(caplog, LOST, "controllers_awaited") == ["controllers_awaited"]
    first.revive()
    assert await asking == 1000
    assert events(caplog, LOST, BACK, "controller_found") == ["controller_found"]
    channel.close()


async def test_the_told_leader_is_asked_first(outside: Outside) -> None:
    """The follower of the metadata log knows the leader before anybody asks."""
    first, second = controller(outside, 3000), controller(outside, 3001)
    known, channel = channel_to(outside, first, second)
    known.tell(second.node)
    await ask(channel)
    known.tell(None)
    await ask(channel)
    assert not first.requests
    channel.close()


async def test_a_leader_by_its_id_shares_the_connection_of_its_address(outside: Outside) -> None:
    """A bootstrap server is the same node, whose id was not known yet."""
    only = controller(outside)
    known = Controllers([Node(-1, only.node.host, only.node.port)])
    channel = ControllerChannel(known, CLIENT, outside.runtime)
    known.tell(only.node)
    assert known.known == [only.node]
    await ask(channel)
    assert only.connection_count == 1
    channel.close()


async def test_a_request_is_not_sent_twice_when_a_bootstrap_server_gets_its_id(
    outside: Outside,
) -> None:
    """The leader of the metadata log is often found while the registration is under way."""
    only = controller(outside)
    outside.network.delay_s = 0.1
    known = Controllers([Node(-1, only.node.host, only.node.port)])
    channel = ControllerChannel(known, CLIENT, outside.runtime)
    asking = asyncio.ensure_future(ask(channel))
    await outside.pass_time(0.5)
    known.tell(only.node)
    assert await asking == 1000
    assert len(only.requests) == 1
    channel.close()


async def test_the_next_controller_is_asked_where_one_goes_away(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A request in flight is sent to the next one, as Kafka's brokers do, without an error."""
    caplog.set_level(logging.INFO)
    first, second = controller(outside, 3000), controller(outside, 3001)
    first.answers[AllocateProducerIdsRequest] = lambda _: SILENCE
    known, channel = channel_to(outside, first, second)
    asking = asyncio.ensure_future(ask(channel))
    await outside.pass_time(1)
    first.kill()
    assert await asking == 1000
    assert known.active == second.node
    assert events(caplog, LOST, BACK) == []
    channel.close()


async def test_a_controller_that_falls_silent_is_given_up(outside: Outside) -> None:
    """Its time is that of one attempt, not the whole time of the request."""
    first, second = controller(outside, 3000), controller(outside, 3001)
    first.answers[AllocateProducerIdsRequest] = lambda _: SILENCE
    _, channel = channel_to(outside, first, second)
    assert await ask(channel, timeout_ms=20_000) == 1000
    assert 4.9 < outside.loop.time() < 5.5
    channel.close()


async def test_a_request_leaves_a_silent_controller_when_another_takes_its_place(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine without power closes no connection, and the attempt has time left."""
    first, second = controller(outside, 3000), controller(outside, 3001)
    known, channel = channel_to(outside, first, second)
    await ask(channel)
    first.answers[AllocateProducerIdsRequest] = lambda _: SILENCE
    asking = [asyncio.ensure_future(ask(channel, timeout_ms=60_000)) for _ in range(3)]
    await outside.pass_time(1)
    # The same leader is no news.
    known.tell(first.node)
    await outside.pass_time(1)
    assert not any(each.done() for each in asking)
    known.tell(second.node)
    assert await asyncio.gather(*asking) == [1000] * 3
    assert outside.loop.time() < 2.1
    assert events(caplog, LOST) == []
    channel.close()


async def test_the_log_says_once_that_no_controller_answers(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """And once that one does again, however often was asked between."""
    caplog.set_level(logging.INFO)
    only = controller(outside)
    _, channel = channel_to(outside, only)
    await ask(channel)
    only.kill()
    for _ in range(3):
        with pytest.raises(NoControllerError):
            await ask(channel, timeout_ms=3000)
    assert events(caplog, LOST, BACK) == [LOST]
    only.revive()
    await ask(channel)
    await ask(channel)
    assert events(caplog, LOST, BACK) == [LOST, BACK]
    channel.close()


async def test_the_error_names_every_controller_that_was_asked(outside: Outside) -> None:
    """Each with what it did: an operator sees which one to look at."""
    dead, idle, silent = (controller(outside, number) for number in (1, 2, 3))
    dead.kill()
    idle.answers[AllocateProducerIdsRequest] = standby(AllocateProducerIdsRequest)
    silent.answers[AllocateProducerIdsRequest] = lambda _: SILENCE
    _, channel = channel_to(outside, dead, idle, silent)
    with pytest.raises(NoControllerError) as caught:
        await ask(channel, timeout_ms=9000)
    text = str(caught.value)
    assert "AllocateProducerIdsRequest within 9000 ms" in text
    assert "node 1 " in text
    assert "no connection" in text
    assert f"{idle.node}: it is not the active controller" in text
    assert "no answer" in text
    assert 8.9 < outside.loop.time() < 9.1
    channel.close()


async def test_without_a_known_controller_a_request_waits_for_one(outside: Outside) -> None:
    """The leader of the metadata log may become known while it waits."""
    known, channel = channel_to(outside)
    with pytest.raises(NoControllerError, match="none is known"):
        await ask(channel, timeout_ms=500)
    asking = asyncio.ensure_future(ask(channel))
    await outside.pass_time(2)
    known.tell(controller(outside).node)
    assert await asking == 1000
    channel.close()


async def test_other_errors_are_the_askers(outside: Outside) -> None:
    """An answer with any other error code is an answer."""
    only = controller(outside)
    stale = AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    only.answers[AllocateProducerIdsRequest] = lambda _: stale
    _, channel = channel_to(outside, only)
    answer = await channel.ask(REQUEST, AllocateProducerIdsResponse, timeout_ms=1000)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert len(only.requests) == 1
    channel.close()


async def test_a_controller_that_is_too_old_is_an_error_at_once(outside: Outside) -> None:
    """No other controller would know more: they are updated together."""
    only = controller(outside)
    only.versions[ApiKey.ALLOCATE_PRODUCER_IDS] = (0, -1)
    _, channel = channel_to(outside, only)
    with pytest.raises(UnsupportedBrokerError, match="AllocateProducerIds"):
        await ask(channel)
    channel.close()


async def test_a_refused_login_is_an_error_at_once(outside: Outside) -> None:
    """A user that one controller does not have, the others do not have either."""
    only = controller(outside)
    refuse_logins(only)
    _, channel = channel_to(outside, only, config=LOGIN)
    with pytest.raises(AuthenticationError, match="no such user"):
        await ask(channel)
    channel.close()


async def test_an_answer_of_garbage_is_asked_for_again(outside: Outside) -> None:
    """Bytes that are no answer end the connection, and the next attempt has another."""
    only = controller(outside)
    answers = [EnvelopeResponse(response_data=b"x" * 50), ANSWER]
    only.answers[AllocateProducerIdsRequest] = lambda _: answers.pop(0)
    _, channel = channel_to(outside, only)
    assert await ask(channel) == 1000
    assert only.connection_count == 2
    channel.close()


# -- envelopes --------------------------------------------------------------------------------


CREATE = APIS[ApiKey.CREATE_TOPICS]


def forwarded(correlation_id: int = 77) -> bytes:
    """A request of a client, without its size."""
    return encode_request(
        CREATE, CreateTopicsRequest(), version=7, correlation_id=correlation_id, client_id="c"
    )[4:]


def answer_to(correlation_id: int = 77) -> bytes:
    """The frame of the answer to it, without its size."""
    answer = CreateTopicsResponse()
    return encode_response(CREATE, answer, version=7, correlation_id=correlation_id)[4:]


async def forward(channel: ControllerChannel) -> bytes:
    """The forwarded answer."""
    return await channel.forward(
        forwarded(), principal=b"\0\0principal", client_address=bytes([127, 0, 0, 1])
    )


async def test_a_client_s_bytes_pass_both_ways_as_they_are(outside: Outside) -> None:
    """The envelope has the request with its header, the principal and the client's address."""
    only = ScriptedController(outside)
    only.answers[EnvelopeRequest] = lambda _: EnvelopeResponse(response_data=answer_to())
    _, channel = channel_to(outside, only)
    assert await forward(channel) == answer_to()
    (envelope,) = only.requests
    assert envelope.request_data == forwarded()
    assert envelope.request_principal == b"\0\0principal"
    assert envelope.client_host_address == bytes([127, 0, 0, 1])
    channel.close()


async def test_an_envelope_goes_to_the_next_controller_too(outside: Outside) -> None:
    """A controller that is not the active one says so in the envelope (KIP-590)."""
    first, second = ScriptedController(outside, 1), ScriptedController(outside, 2)
    first.answers[EnvelopeRequest] = standby(EnvelopeRequest)
    second.answers[EnvelopeRequest] = lambda _: EnvelopeResponse(response_data=answer_to())
    _, channel = channel_to(outside, first, second)
    assert await forward(channel) == answer_to()
    channel.close()


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, 97])
async def test_a_refused_envelope_is_an_error_with_its_code(outside: Outside, code: int) -> None:
    """The forwarder decides what the client gets: UNSUPPORTED_VERSION ends its connection."""
    only = ScriptedController(outside)
    only.answers[EnvelopeRequest] = lambda _: EnvelopeResponse(error_code=code)
    _, channel = channel_to(outside, only)
    with pytest.raises(ForwardRefusedError) as caught:
        await forward(channel)
    assert caught.value.code == code
    channel.close()


@pytest.mark.parametrize("data", [None, b"", b"\0\0", answer_to(78)])
async def test_an_answer_to_another_request_is_refused(
    outside: Outside, data: bytes | None
) -> None:
    """A client would take it for its own, or lose its connection."""
    only = ScriptedController(outside)
    only.answers[EnvelopeRequest] = lambda _: EnvelopeResponse(response_data=data)
    _, channel = channel_to(outside, only)
    with pytest.raises(ForwardRefusedError, match="another request"):
        await forward(channel)
    channel.close()
