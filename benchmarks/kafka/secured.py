"""TLS and logins: what encrypted traffic costs both brokers, and what a login by SCRAM does.

librdkafka produces and fetches the same records by the SSL listener and by the plain one of the
same brokers; both have one certificate, and choose among the client's suites as they do by default.
Logins are of a user with 4096 iterations, whose salted password the client keeps: the broker is
what is measured. A round of each is thrown away.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count

from benchmarks.kafka.brokers import Broker, Brokers, both, compare, take_turns
from benchmarks.kafka.client import Load, Run, run_client
from benchmarks.kafka.peer import Peer
from benchmarks.macro.load import connected, send_all
from benchmarks.macro.secured import PASSWORD, SCRAM, USER
from benchmarks.measure import Bench, Cost, Figure, cost_of
from tailrace.client import BrokerAddress
from tailrace.client.admin import Admin, ScramMechanism, ScramUpsertion
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import SIZE_BYTES, decode_response, encode_request
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.security.scram import client_proof, salted_password

PROTOCOLS = ("PLAINTEXT", "SSL")
BATCHES: Mapping[str, object] = {"batch.size": 16 * 1024, "linger.ms": 50}
VALUE_BYTES = 1000
BYTES_PER_ROUND = 300_000_000
LOGINS = 1_000
ITERATIONS = 4096
NONCE = "fyko+d2lbbFgONRv9qkxdawL"

CPU_AIM = 0.8
LOGINS_AIM = 1.0


def measure_secured(bench: Bench, peer: Peer) -> list[Figure]:
    """CPU of produce and fetch by TLS, and of a login by SCRAM."""
    with both(bench, peer, is_secured=True) as brokers:
        return [*_measure_traffic(bench, brokers), *_measure_logins(bench, brokers)]


def _measure_traffic(bench: Bench, brokers: Brokers) -> list[Figure]:
    numbers = count()
    total = bench.scaled(BYTES_PER_ROUND, quick=1_000_000)
    figures = []
    for protocol in PROTOCOLS:
        bench.say(f"secured: traffic by {protocol}")
        work = partial(_produce_and_fetch, protocol=protocol, numbers=numbers, total=total)
        for broker in brokers:
            work(broker)
        found = take_turns(bench, brokers, work)

        def figure(
            what: str,
            value: Callable[[tuple[Run, Run]], float],
            aim: float | None = None,
            protocol: str = protocol,
            found: Mapping[str, list[tuple[Run, Run]]] = found,
        ) -> Figure:
            name = f"{what}, 1 KB records, 16 KB batches, {protocol}"
            gigabytes = total / 1e9
            return compare(name, "s/GB", found, lambda runs: value(runs) / gigabytes, aim=aim)

        aim = CPU_AIM if protocol == "SSL" else None
        figures += [
            figure("produce", lambda runs: runs[0].cost.seconds),
            figure("produce CPU", lambda runs: runs[0].cost.cpu_seconds, aim),
            figure("fetch", lambda runs: runs[1].cost.seconds),
            figure("fetch CPU", lambda runs: runs[1].cost.cpu_seconds, aim),
        ]
    return figures


def _produce_and_fetch(
    broker: Broker, *, protocol: str, numbers: Iterator[int], total: int
) -> tuple[Run, Run]:
    """Produce so many bytes to a new topic and fetch them; the topic is removed after."""
    topic = f"secured-{next(numbers)}"
    broker.create_topic(topic)
    assert broker.secured is not None
    given = broker.secured.client_settings(protocol)
    address = given.pop("bootstrap.servers")
    runs = []
    for kind, settings in (("produce", {**BATCHES, **given}), ("fetch", given)):
        load = Load(
            topic=topic, count=total // VALUE_BYTES, value_bytes=VALUE_BYTES, settings=settings
        )
        runs.append(run_client(kind, load, address=address, process_ids=[broker.process_id]))
    broker.delete_topic(topic)
    return runs[0], runs[1]


def _measure_logins(bench: Bench, brokers: Brokers) -> list[Figure]:
    logins = bench.scaled(LOGINS, quick=20)
    bench.say(f"secured: {logins} logins by {SCRAM}")
    for broker in brokers:
        with Admin(bootstrap_servers=str(broker.address)) as admin:
            upsertion = ScramUpsertion(USER, ScramMechanism.SHA_256, PASSWORD, ITERATIONS)
            admin.alter_user_scram_credentials([upsertion]).result(USER)
        _log_in(broker, logins)
    found = take_turns(bench, brokers, partial(_log_in, count=logins))
    return [
        compare(
            "a login by SCRAM", "ms", found, lambda cost: cost.seconds / logins * 1e3,
        ),
        compare(
            "a login by SCRAM, CPU", "us", found, lambda cost: cost.cpu_seconds / logins * 1e6,
            aim=LOGINS_AIM,
        ),
    ]  # fmt: skip


def _log_in(broker: Broker, count: int) -> Cost:
    """So many logins, each on a connection of its own, one after the other."""
    assert broker.secured is not None
    address = BrokerAddress("127.0.0.1", broker.secured.sasl_plaintext)
    known: dict[bytes, bytes] = {}

    def work() -> None:
        for _ in range(count):
            _log_in_once(address, known)

    return cost_of(broker.process_id, work)


def _log_in_once(address: BrokerAddress, known: dict[bytes, bytes]) -> None:
    with connected(address) as channel:
        send_all(channel, _frame(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=SCRAM)), 1)

        def give(token: bytes) -> bytes:
            frame = _frame(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
            answer = send_all(channel, frame, 1)
            found = decode_response(
                APIS[ApiKey.SASL_AUTHENTICATE], 1, memoryview(answer)[SIZE_BYTES:]
            )
            assert isinstance(found, SaslAuthenticateResponse)
            assert found.error_code == 0, found
            return bytes(found.auth_bytes)

        bare = f"n={USER},r={NONCE}".encode()
        challenge = give(b"n,," + bare)
        nonce, salt, _ = (each[2:] for each in challenge.split(b","))
        if salt not in known:
            known[salt] = salted_password(
                SCRAM, PASSWORD.encode(), salt=b64decode(salt), iterations=ITERATIONS
            )
        without_proof = b"c=biws,r=" + nonce
        proof = client_proof(SCRAM, known[salt], b",".join((bare, challenge, without_proof)))
        give(without_proof + b",p=" + b64encode(proof))


def _frame(key: ApiKey, body: Message) -> bytes:
    return encode_request(APIS[key], body, version=1, correlation_id=1, client_id="benchmark")
