"""Encrypted listeners of a broker: who gets in, by which name, and what breaks nothing."""

import gc
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.errors import ConfigError
from tailrace.model import ANONYMOUS, Principal
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import Caller
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.security.accepted import AcceptedTlsSocket
from tailrace.server.connection import Connection
from tailrace.server.dispatch import Dispatch
from tailrace.testing import Outside, Peer
from tailrace.testing.network import MemorySocket
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    batch,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)
from tests.unit.broker.tls_peers import channel_of, client_context, encrypted, showing
from tests.unit.security.parties import DAY, NOW, Party, authority, name_of, party, renewed

BROKER = {
    "listeners": "SSL://memory:0",
    **party("broker").keystore,
    **authority().truststore,
}


KEPT = (AcceptedTlsSocket, Connection)


@asynccontextmanager
async def serving(
    outside: Outside, callers: list[Caller] | None = None, **settings: str
) -> AsyncIterator[RunningBroker]:
    """A broker with one encrypted listener, and who sends requests to it."""
    dotted = {name.replace("_", "."): text for name, text in settings.items()}

    def noting(dispatch: Dispatch) -> Dispatch:
        def note(frame: memoryview, caller: Caller, *more: object) -> object:
            if callers is not None:
                callers.append(caller)
            return dispatch(frame, caller, *more)  # type: ignore[arg-type]

        return note  # type: ignore[return-value]

    async with running(outside, {**BROKER, **dotted}, wrap_dispatch=noting) as broker:
        yield broker


async def metadata(peer: Peer) -> MetadataResponse:
    return await peer.ask(ApiKey.METADATA, MetadataRequest(topics=()), MetadataResponse)


def test_an_encrypted_listener_answers(outside: Outside) -> None:
    """A client that trusts the authority gets answers, and without a certificate has no name."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(outside, callers) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            assert (await metadata(peer)).brokers[0].port == broker.endpoint[1]
            assert [each.principal for each in callers] == [ANONYMOUS]
            assert callers[0].listener == "SSL"

    outside.run(main())


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Bob,OU=Data Team\\, North"),
        ("RULE:^CN=(.*?),OU=Data.*$/$1@data/L", "bob@data"),
        ("RULE:^CN=Alice.*$/alice/,RULE:^CN=(\\w+),.*$/$1/U", "BOB"),
    ],
)
def test_a_certificate_names_the_principal(outside: Outside, rules: str, name: str) -> None:
    """The requests of a client with a certificate have its name by the rules."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(
            outside, callers, ssl_client_auth="required", ssl_principal_mapping_rules=rules
        ) as broker:
            bob = showing(party("Bob", "Data Team, North"))
            peer = await encrypted(outside, broker.endpoint[1], bob)
            await metadata(peer)
            assert callers[0].principal == Principal("User", name)

    outside.run(main())


def test_a_listener_has_settings_of_its_own(outside: Outside) -> None:
    """With its prefix they count before those of all listeners, and only there."""
    listeners = {
        "listeners": "INSIDE://memory:0,OUTSIDE://memory:0",
        "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL",
        "inter.broker.listener.name": "INSIDE",
        "listener.name.outside.ssl.client.auth": "required",
    }

    async def main() -> None:
        async with running(outside, {**BROKER, **listeners}) as broker:
            inside, outer = broker.port_of("INSIDE"), broker.port_of("OUTSIDE")
            assert inside is not None
            assert outer is not None
            await metadata(await encrypted(outside, inside))
            with pytest.raises((EOFError, OSError)):
                await metadata(await encrypted(outside, outer))
            await metadata(await encrypted(outside, outer, showing(party("bob"))))

    outside.run(main())


def test_a_certificate_that_is_not_asked_for_is_not_looked_at(outside: Outside) -> None:
    """Without ssl.client.auth a client with a certificate of strangers is anonymous."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(outside, callers) as broker:
            stranger = Party(name_of("outsider"), signed_by=authority("Strangers"))
            await metadata(await encrypted(outside, broker.endpoint[1], showing(stranger)))
            assert callers[0].principal == ANONYMOUS

    outside.run(main())


# -- bad input, and what it does to others ----------------------------------------------------


async def closed(socket: MemorySocket) -> bytes:
    """The bytes that the broker sends until it ends the connection."""
    found = b""
    while data := await socket.receive(1):
        found += data
    return found


@pytest.mark.parametrize(
    ("auth", "who", "reason"),
    [
        ("required", None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        ("required", "stranger", "CERTIFICATE_VERIFY_FAILED"),
        ("requested", "stranger", "CERTIFICATE_VERIFY_FAILED"),
        ("requested", "expired", "certificate has expired"),
    ],
)
def test_a_wrong_certificate_ends_the_connection(
    outside: Outside, caplog: pytest.LogCaptureFixture, auth: str, who: str | None, reason: str
) -> None:
    """The log says whose and why, the client gets an alert, and no request is answered."""
    made = {
        "stranger": Party(name_of("outsider"), signed_by=authority("Strangers")),
        "expired": Party(
            name_of("bob"), signed_by=authority(), begins=NOW - 9 * DAY, ends=NOW - DAY
        ),
    }

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(outside, callers, ssl_client_auth=auth) as broker:
            context = client_context() if who is None else showing(made[who])
            peer = await encrypted(outside, broker.endpoint[1], context)
            with pytest.raises((EOFError, OSError)):
                await metadata(peer)
            assert not callers
            assert any(
                reason in each and "tls_failed peer=memory" in each and "listener=SSL" in each
                for each in caplog.messages
            )

    caplog.set_level("INFO")
    outside.run(main())


def test_requested_certificates_may_be_left_out(outside: Outside) -> None:
    """A client without one is anonymous there."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(outside, callers, ssl_client_auth="requested") as broker:
            await metadata(await encrypted(outside, broker.endpoint[1]))
            assert callers[0].principal == ANONYMOUS

    outside.run(main())


def test_a_certificate_that_no_rule_is_for_is_refused(outside: Outside) -> None:
    """Kafka closes such a connection, too."""

    async def main() -> None:
        rules = "RULE:^CN=Alice$/alice/"
        async with serving(
            outside, ssl_client_auth="required", ssl_principal_mapping_rules=rules
        ) as broker:
            peer = await encrypted(outside, broker.endpoint[1], showing(party("Bob")))
            with pytest.raises((EOFError, OSError)):
                await metadata(peer)

    outside.run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x20\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01a" + b"\x00" * 21,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + b"x" * 70000,
        b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff",
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + b"a" * 40,
        b"\x15\x03\x03\x00\x02\x02\x28",
        bytes(100000),
    ],
)
def test_garbage_instead_of_a_handshake_ends_the_connection(outside: Outside, data: bytes) -> None:
    """A client in plain text, a browser, and lengths that are lies; another client is served."""

    async def main() -> None:
        async with serving(outside) as broker:
            other = await encrypted(outside, broker.endpoint[1])
            socket = outside.network.open(broker.endpoint[1])
            view = memoryview(data)
            with suppress(BrokenPipeError):
                while view:
                    view = view[socket.send([view]) or 0 :]
                    await outside.pass_time(0.001)
            await closed(socket)
            await metadata(other)

    outside.run(main())


def test_garbage_after_the_handshake_ends_the_connection(outside: Outside) -> None:
    """Bytes that are no TLS record of this connection are never taken for a request."""

    async def main() -> None:
        callers: list[Caller] = []
        async with serving(outside, callers) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            channel = channel_of(peer)
            channel.raw.send([b"\x17\x03\x03\x00\x20" + b"g" * 32])
            await closed(channel.raw)
            assert not callers

    outside.run(main())


def test_a_handshake_that_is_left_ends_in_time(outside: Outside) -> None:
    """Bytes that trickle do not prolong it, and an idle connection after it may stay longer."""

    async def main() -> None:
        async with serving(outside) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            socket = outside.network.open(broker.endpoint[1])
            hello = b"\x16\x03\x01\x00\xff" + bytes(255)
            sent = 0
            with suppress(BrokenPipeError):
                while sent < 40:
                    socket.send([hello[sent : sent + 1]])
                    sent += 1
                    await outside.pass_time(1)
            assert 29 <= sent <= 37
            await metadata(peer)

    outside.run(main())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xff"])
def test_a_closed_connection_waits_for_no_garbage_collector(outside: Outside, sent: bytes) -> None:
    """Its memory is freed at once, also after a handshake that has failed or was left."""

    async def main() -> None:
        async with serving(outside) as broker:
            gc.collect()
            gc.disable()
            if sent:
                socket = outside.network.open(broker.endpoint[1])
                socket.send([sent])
            else:
                peer = await encrypted(outside, broker.endpoint[1])
                await metadata(peer)
                socket = channel_of(peer).raw
            await outside.pass_time(1)
            socket.close()
            await outside.pass_time(10)
            kept = [each for each in gc.get_objects() if isinstance(each, KEPT)]
            assert not kept

    try:
        outside.run(main())
    finally:
        gc.enable()


# -- bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("receive_bytes_max", [1, 1000, 1 << 20])
def test_large_requests_and_answers_arrive(outside: Outside, receive_bytes_max: int) -> None:
    """A batch of 1 MB and its fetch, in whatever pieces the network delivers."""
    size = 1_000_000 if receive_bytes_max > 1 else 3_000
    value = bytes(range(256)) * (size // 256)

    async def main() -> None:
        async with serving(outside) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            await create_topic(peer, "t")
            outside.network.receive_bytes_max = receive_bytes_max
            sending = batch(value)
            assert (await produce(peer, "t", sending)).error_code == 0
            found = await fetch(peer, fetch_request("t", 0))
            assert isinstance(found.records, bytes | memoryview)
            assert bytes(found.records)[61:] == sending[61:]

    outside.run(main())


def test_requests_that_arrive_together_are_all_answered(outside: Outside) -> None:
    """A request that OpenSSL has decrypted already waits for no byte that would follow."""

    async def main() -> None:
        async with serving(outside) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            for _ in range(300):
                peer.send(ApiKey.METADATA, MetadataRequest(topics=()))
            for _ in range(300):
                await peer.read_frame()

    outside.run(main())


def test_a_client_that_closes_is_noticed(outside: Outside) -> None:
    """Also one that has said so by close_notify while its fetch waits for records."""

    async def main() -> None:
        async with serving(outside) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            await create_topic(peer, "t")
            request = fetch_request("t", 0, max_wait_ms=100_000, min_bytes=1)
            peer.send(ApiKey.FETCH, request, version=BY_NAME_FETCH)
            await outside.pass_time(0.1)
            peer.socket.close()
            await outside.pass_time(20)
            assert broker.statistics().server.connection_count == 0

    outside.run(main())


def test_a_client_that_leaves_in_silence_needs_no_thread(outside: Outside) -> None:
    """Thousands may leave at once: those that have said nothing are closed without a thread."""

    async def main() -> None:
        async with serving(outside) as broker:
            socket = outside.network.open(broker.endpoint[1])
            await outside.pass_time(0.1)
            assert broker.statistics().server.connection_count == 1
            outside.threads.seconds_per_run = 3600
            socket.close()
            await outside.pass_time(0.1)
            assert broker.statistics().server.connection_count == 0

    outside.run(main())


# -- renewal ----------------------------------------------------------------------------------


def shown(peer: Peer) -> str:
    """The subject of the certificate that the broker shows."""
    der = channel_of(peer).tls.tls.getpeercert(binary_form=True)
    assert der is not None
    return hashlib.sha256(der).hexdigest()


def test_a_changed_file_is_used_for_new_connections(
    outside: Outside, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is not usable changes nothing, and open connections stay."""
    keystore = tmp_path / "broker.pem"

    def write(who: Party | str) -> None:
        text = who if isinstance(who, str) else who.certificate + who.key
        new = tmp_path / "new.pem"
        new.write_text(text)
        new.replace(keystore)

    async def main() -> None:
        write(party("broker"))
        files = {"listeners": "SSL://memory:0", "ssl.keystore.location": str(keystore)}
        async with running(outside, files) as broker:
            first = await encrypted(outside, broker.endpoint[1])
            write("-----BEGIN CERTIFICATE-----")
            await outside.pass_time(40)
            assert shown(await encrypted(outside, broker.endpoint[1])) == shown(first)
            said = [each for each in caplog.messages if "certificate_not_renewed" in each]
            assert len(said) == 1
            assert "ssl.keystore.location" in said[0]
            write(renewed("broker"))
            await outside.pass_time(11)
            assert shown(await encrypted(outside, broker.endpoint[1])) != shown(first)
            await metadata(first)
            # Of another subject: clients could take it for another broker.
            before = shown(await encrypted(outside, broker.endpoint[1]))
            write(renewed("other"))
            await outside.pass_time(11)
            assert shown(await encrypted(outside, broker.endpoint[1])) == before

    outside.run(main())


def test_files_are_looked_at_again_after_a_moment_without_threads(
    outside: Outside, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A look that the system refuses ends nothing: the next one finds the renewed certificate."""
    keystore = tmp_path / "broker.pem"
    first, second = party("broker"), renewed("broker")
    keystore.write_text(first.certificate + first.key)

    async def main() -> None:
        files = {"listeners": "SSL://memory:0", "ssl.keystore.location": str(keystore)}
        async with running(outside, files) as broker:
            before = shown(await encrypted(outside, broker.endpoint[1]))
            outside.threads.refusal = RuntimeError("can't start new thread")
            await outside.pass_time(11)
            outside.threads.refusal = None
            assert any(
                "certificate_not_renewed" in each and "looked at again" in each
                for each in caplog.messages
            )
            keystore.write_text(second.certificate + second.key)
            await outside.pass_time(11)
            assert shown(await encrypted(outside, broker.endpoint[1])) != before

    outside.run(main())


async def alter(peer: Peer, name: str, text: str) -> IncrementalAlterConfigsResourceResponse:
    """Change one setting of the broker."""
    config = IncrementalAlterableConfig(name=name, config_operation=0, value=text)
    resource = IncrementalAlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name="1", configs=(config,)
    )
    answer = await peer.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        IncrementalAlterConfigsRequest(resources=(resource,)),
        IncrementalAlterConfigsResponse,
    )
    return answer.responses[0]


def test_a_listener_takes_another_keystore_while_the_broker_runs(
    outside: Outside, tmp_path: Path
) -> None:
    """By its prefix only; a certificate of other hosts is refused, and nothing changes."""

    def stored(who: Party) -> str:
        path = tmp_path / f"{who.private.private_numbers().private_value % 10**9}.pem"
        path.write_text(who.certificate + who.key)
        return str(path)

    async def main() -> None:
        files = {
            "node.id": "1",
            "listeners": "SSL://memory:0",
            "ssl.keystore.location": stored(party("broker")),
        }
        name = "listener.name.ssl.ssl.keystore.location"
        async with running(outside, files) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            another = stored(renewed("broker"))
            answer = await alter(peer, "ssl.keystore.location", another)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            for wrong, said in (
                (Party(name_of("broker"), signed_by=authority(), hosts=("x",)), "names of hosts"),
                (renewed("other"), "the subject of the new"),
            ):
                answer = await alter(peer, name, stored(wrong))
                assert answer.error_code == ErrorCode.INVALID_REQUEST
                assert said in (answer.error_message or "")
            answer = await alter(peer, name, str(tmp_path / "missing"))
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert shown(await encrypted(outside, broker.endpoint[1])) == shown(peer)
            answer = await alter(peer, name, another)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            assert shown(await encrypted(outside, broker.endpoint[1])) != shown(peer)

    outside.run(main())


# -- starts that are refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ssl.keystore.key": party("other").key}, "the key must belong to the first certificate"),
        ({"ssl.keystore.key": "x"}, "there is no private key"),
        ({"ssl.keystore.certificate.chain": ""}, "there is no certificate"),
        ({"ssl.truststore.certificates": "", "ssl.client.auth": "required"},
         "ssl.truststore.location: it has to name the authorities"),
        ({"ssl.keystore.location": "/none.pem"}, "is given too"),
        ({"ssl.cipher.suites": "NONE"}, "is no suite"),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "is not DEFAULT"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_an_error_of_the_start(
    outside: Outside, changes: dict[str, str], reason: str
) -> None:
    """The error names the setting, and the listener where it has settings of its own."""

    async def main() -> None:
        with pytest.raises(ConfigError, match=reason):
            async with running(outside, {**BROKER, **changes}):
                pass

    outside.run(main())


def test_a_certificate_at_its_end_is_a_warning(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the listener, the subject and the time."""
    old = Party(name_of("old"), signed_by=authority(), begins=NOW - 9 * DAY, ends=NOW - DAY)

    async def main() -> None:
        async with running(outside, {**BROKER, **old.keystore}):
            [line] = [each for each in caplog.messages if "certificate_expired" in each]
            assert "listener=SSL subject='CN=old'" in line
            assert f"until={(NOW - DAY).strftime('%Y-%m-%dT%H:%M:%SZ')}" in line

    outside.run(main())


def test_secrets_are_not_shown(outside: Outside) -> None:
    """DescribeConfigs has the names of passwords and keys, and no value."""

    async def main() -> None:
        settings = {**BROKER, "listener.name.ssl.ssl.key.password": "hunter2"}
        async with running(outside, settings) as broker:
            peer = await encrypted(outside, broker.endpoint[1])
            resource = DescribeConfigsResource(
                resource_type=ResourceType.BROKER, resource_name="1", configuration_keys=None
            )
            answer = await peer.ask(
                ApiKey.DESCRIBE_CONFIGS,
                DescribeConfigsRequest(resources=(resource,), include_synonyms=True),
                DescribeConfigsResponse,
            )
            found = {each.name: each for each in answer.results[0].configs}
            for name in ("ssl.keystore.key", "listener.name.ssl.ssl.key.password"):
                assert found[name].is_sensitive
                assert found[name].value is None
            assert "hunter2" not in repr(answer)
            assert "PRIVATE KEY" not in repr(answer)

    outside.run(main())
