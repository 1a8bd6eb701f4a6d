"""Attacks on listeners with TLS and logins, by clients that have no password.

Run as those of `attacks`, each on the port of the listener that is named with it.
"""

import random
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import encode_request
from tailrace.protocol.messages.api_versions import ApiVersionsRequest
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest

HOST: Final = "127.0.0.1"
ADDRESSES: Final = tuple(f"127.0.0.{number}" for number in range(2, 14))
"""From which connections come: a limit for each address stops none of these attacks."""
IDLE_COUNT: Final = 10_000
HALF_OPEN_COUNT: Final = 3_000
LOGIN_COUNT: Final = 300
"""Logins at a time."""
TOKEN_BYTES: Final = 524_288
"""The largest frame before a login: `sasl.server.max.receive.size`."""
CERTIFICATE_BYTES: Final = 1_000_000
UPDATES_AT_ONCE: Final = 500

Attack = Callable[[int, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredAttack:
    """An attack, and the protocol of the listener that it is for."""

    protocol: str
    run: Attack


def _opened(port: int, address: str = ADDRESSES[0], timeout_s: float = 5) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=timeout_s, source_address=(address, 0))


@contextmanager
def _held() -> Iterator[list[socket.socket]]:
    """Connections that are closed at the end."""
    held: list[socket.socket] = []
    try:
        yield held
    finally:
        for each in held:
            each.close()


def _is_over(deadline: float) -> bool:
    return time.monotonic() >= deadline


def _read_to_the_end(connection: socket.socket, deadline: float) -> None:
    with suppress(OSError):
        while not _is_over(deadline):
            connection.settimeout(max(deadline - time.monotonic(), 0.01))
            if not connection.recv(65536):
                return


# -- TLS ------------------------------------------------------------------------------------------


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _hello() -> bytes:
    """The first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _context().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def garbage_before(port: int, deadline: float) -> None:
    """Bytes at random, requests in plain text, and first messages with changed bytes."""
    chance, hello = random.Random(1), _hello()
    while not _is_over(deadline):
        data = bytearray(chance.choice((chance.randbytes(20_000), bytes(1000), hello)))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(OSError), _opened(port) as connection:
            connection.sendall(data)
            connection.settimeout(0.05)
            connection.recv(65536)


def garbage_during(port: int, deadline: float) -> None:
    """A sound first message, and then bytes at random in records that look right."""
    chance, hello = random.Random(2), _hello()
    while not _is_over(deadline):
        with suppress(OSError), _opened(port) as connection:
            connection.sendall(hello)
            connection.recv(65536)
            for kind in chance.choices((20, 21, 22, 23), k=chance.randint(1, 5)):
                body = chance.randbytes(chance.randrange(1, 16_000))
                connection.sendall(struct.pack(">BHH", kind, 0x0303, len(body)) + body)
            connection.settimeout(0.05)
            connection.recv(65536)


def half_open(port: int, deadline: float) -> None:
    """Thousands of handshakes that end with the client's first message; the oldest go first."""
    hello, addresses = _hello(), cycle(ADDRESSES)
    with _held() as held:
        while not _is_over(deadline):
            with suppress(OSError):
                connection = _opened(port, next(addresses), 0.2)
                held.append(connection)
                connection.sendall(hello)
            if len(held) > HALF_OPEN_COUNT:
                held.pop(0).close()


def whole_handshakes(port: int, deadline: float) -> None:
    """A handshake after the other, each on a connection of its own."""
    context = _context()
    while not _is_over(deadline):
        with suppress(OSError), _opened(port) as connection:
            context.wrap_socket(connection).close()


def large_certificates(port: int, deadline: float) -> None:
    """Clients that show certificates of a megabyte."""
    from cryptography import x509

    from tests.unit.security.parties import Party, name_of

    filler = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), bytes(CERTIFICATE_BYTES))
    stranger = Party(name_of("stranger"), extensions=(filler,))
    context = _context()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stranger.pem"
        file.write_text(stranger.certificate + stranger.key)
        context.load_cert_chain(file)
    while not _is_over(deadline):
        with suppress(OSError), _opened(port) as connection:
            shaken = context.wrap_socket(connection)
            shaken.sendall(bytes(100))
            shaken.recv(1)


def key_updates(port: int, deadline: float) -> None:
    """Updates of keys, each of which the broker has to answer, and no answer is read."""
    from tests.unit.security.key_updates import KeyUpdates

    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "keys"
        while not _is_over(deadline):
            log.unlink(missing_ok=True)
            context = _context()
            context.keylog_filename = str(log)
            with suppress(OSError), _opened(port) as connection:
                shaken = context.wrap_socket(connection)
                updates = KeyUpdates(log.read_text())
                with socket.socket(fileno=shaken.detach()) as raw:
                    raw.settimeout(0.2)
                    while not _is_over(deadline):
                        raw.sendall(updates.take(UPDATES_AT_ONCE))


# -- logins ---------------------------------------------------------------------------------------


def _frame(key: ApiKey, version: int, body: Message) -> bytes:
    return encode_request(APIS[key], body, version=version, correlation_id=1, client_id="hostile")


def _handshake(mechanism: str) -> bytes:
    return _frame(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))


def _token(token: bytes) -> bytes:
    return _frame(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))


def _again_and_again(*conversations: bytes) -> Attack:
    """Conversations, `LOGIN_COUNT` at a time, each on a connection that is read to its end."""

    def attack(port: int, deadline: float) -> None:
        said, addresses = cycle(conversations), cycle(ADDRESSES)
        while not _is_over(deadline):
            with _held() as held:
                for _ in range(LOGIN_COUNT):
                    if _is_over(deadline):
                        return
                    with suppress(OSError):
                        held.append(_opened(port, next(addresses)))
                        held[-1].sendall(next(said))
                for each in held:
                    _read_to_the_end(each, deadline)

    return attack


def endless_versions(port: int, deadline: float) -> None:
    """ApiVersions in a version that nobody has, which leaves a connection where it was."""
    frame = bytearray(_frame(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    struct.pack_into(">h", frame, 6, 99)
    burst = bytes(frame) * 200
    with suppress(OSError), _opened(port) as connection:
        while not _is_over(deadline):
            connection.sendall(burst)
            connection.recv(1024 * 1024)


def unended_tokens(port: int, deadline: float) -> None:
    """Two thousand tokens of half a megabyte, of which the last byte never comes."""
    start = _handshake("PLAIN") + struct.pack(">i", TOKEN_BYTES)
    addresses = cycle(ADDRESSES)
    with _held() as held:
        for _ in range(2_000):
            if _is_over(deadline):
                return
            with suppress(OSError):
                held.append(_opened(port, next(addresses), 0.5))
                held[-1].sendall(start)
                held[-1].setblocking(False)  # noqa: FBT003 - the socket's own signature
                held[-1].send(bytes(TOKEN_BYTES - 1))
        time.sleep(max(deadline - time.monotonic(), 0))


def idle_sockets(port: int, deadline: float) -> None:
    """Ten thousand connections that say nothing, or as many as are let in meanwhile."""
    addresses = cycle(ADDRESSES)
    with _held() as held:
        while len(held) < IDLE_COUNT and not _is_over(deadline):
            with suppress(OSError):
                held.append(_opened(port, next(addresses), 0.5))
        print(f"{len(held)} idle sockets", flush=True)
        time.sleep(max(deadline - time.monotonic(), 0))


_SCRAM: Final = _handshake("SCRAM-SHA-256") + _token(b"n,,n=nobody,r=abcdefghijklmnop")

SECURED_ATTACKS: Final[Mapping[str, SecuredAttack]] = {
    "garbage before a handshake": SecuredAttack(protocol="SSL", run=garbage_before),
    "garbage during a handshake": SecuredAttack(protocol="SSL", run=garbage_during),
    "3000 half-open handshakes": SecuredAttack(protocol="SSL", run=half_open),
    "handshakes, one after the other": SecuredAttack(protocol="SASL_SSL", run=whole_handshakes),
    "key updates, no answers taken": SecuredAttack(protocol="SSL", run=key_updates),
    "certificates of 1 MB": SecuredAttack(protocol="SSL", run=large_certificates),
    "SASL handshakes again and again": SecuredAttack(
        protocol="SASL_PLAINTEXT", run=_again_and_again(_handshake("PLAIN") * 500)
    ),
    "ApiVersions before a login": SecuredAttack(protocol="SASL_PLAINTEXT", run=endless_versions),
    "tokens without an end": SecuredAttack(protocol="SASL_PLAINTEXT", run=unended_tokens),
    "wrong passwords by PLAIN": SecuredAttack(
        protocol="SASL_PLAINTEXT",
        run=_again_and_again(_handshake("PLAIN") + _token(b"\0alice\0wrong")),
    ),
    "unknown users by SCRAM": SecuredAttack(
        protocol="SASL_PLAINTEXT",
        run=_again_and_again(_SCRAM + _token(b"c=biws,r=abcdefghijklmnop,p=AAAA")),
    ),
    "idle sockets, up to 10000": SecuredAttack(protocol="SASL_SSL", run=idle_sockets),
}
"""By name."""
