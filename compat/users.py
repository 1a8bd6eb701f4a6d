"""Users that log in by SCRAM go with the directory, and both brokers answer logins alike.

    ours formats, with alice -> Kafka logs alice in, creates bob -> ours logs both in, creates carol
    -> Kafka logs all in;    Kafka formats, with dave -> ours logs dave in

The same logins, good and refused, are made at both, by the same client.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from compat import ours
from compat.kafka import CLUSTER_ID, NODE_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from tailrace.client import ClusterReader
from tailrace.client.admin import Admin, ScramMechanism, ScramUpsertion
from tailrace.client.nodes.oauth import unsecured_token
from tailrace.cluster.scram_arguments import parse_scram_users
from tailrace.errors import TailraceError
from tailrace.offline.formatting import Wanted, format_directories, levels_of
from tailrace.runtime.system import system_runtime

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SHA_256, "SCRAM-SHA-512": ScramMechanism.SHA_512}
_JAAS = "org.apache.kafka.common.security"
_LISTENER = "listener.name.sasl_plaintext"
SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{_LISTENER}.plain.sasl.jaas.config":
        f'{_JAAS}.plain.PlainLoginModule required user_erin="erin-secret";',
    f"{_LISTENER}.scram-sha-256.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
    f"{_LISTENER}.scram-sha-512.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
    f"{_LISTENER}.oauthbearer.sasl.jaas.config":
        f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="read";',
}  # fmt: skip


def check(report: Report, both: Kafka, other: Kafka) -> None:
    """Take turns on the directory of `both`, which is new.

    Kafka's tool formats that of `other`, with `DAVE`.
    """
    runtime = system_runtime()
    format_directories(
        runtime.files,
        [str(both.logs)],
        Wanted(
            cluster_id=CLUSTER_ID,
            node_id=NODE_ID,
            levels=levels_of(None, {}),
            scram=parse_scram_users(_arguments("alice")),
        ),
        clock=runtime.clock,
        chance=runtime.chance,
    )
    with _kafka(both) as at:
        kafkas = dict(_answers(at))
        failed = list(_refused(at, "alice"))
        _create(at, "bob")
        failed += _refused(at, "bob")
    report.check("Kafka logs in the users of a directory that our tool has formatted", failed)
    with _ours(both.logs) as at:
        own = dict(_answers(at))
        failed = [*_refused(at, "alice"), *_refused(at, "bob")]
        _create(at, "carol")
        failed += _refused(at, "carol")
    report.check("we log in users that either has made on the same directory", failed)
    with _kafka(both) as at:
        failed = [each for name in ("alice", "bob", "carol") for each in _refused(at, name)]
    report.check("Kafka logs in users that we have made", failed)
    with _kafka(other) as at:
        failed = list(_refused(at, "dave"))
    with _ours(other.logs) as at:
        failed += _refused(at, "dave")
    report.check("both log in the users of a directory that Kafka's tool has formatted", failed)
    report.check(
        "both answer the same logins alike, also those that they refuse",
        [f"{name}: {own[name]!r}, Kafka {kafkas[name]!r}" for name in own
         if own[name] != kafkas[name]],
    )  # fmt: skip


def _arguments(user: str) -> list[str]:
    return [f"{each}=[name={user},password={user}-secret]" for each in MECHANISMS]


DAVE = tuple(each for argument in _arguments("dave") for each in ("--add-scram", argument))
"""Options of Kafka's storage tool."""


@contextmanager
def kafka_with_logins(kafka: Kafka, settings: Mapping[str, str]) -> Iterator[str]:
    """Kafka with a listener for logins and these settings; gives its address."""
    plain, sasl, controller = (f"127.0.0.1:{port}" for port in free_ports(3))
    public = f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}"
    kafka.settings |= {
        "listeners": f"{public},CONTROLLER://{controller}",
        "advertised.listeners": public,
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "listener.security.protocol.map":
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        **settings,
    }  # fmt: skip
    with kafka:
        yield sasl


def ours_with_logins(directory: Path, settings: Mapping[str, str]) -> AbstractContextManager[str]:
    """The same of our broker, on a directory."""
    return ours.serving(directory, settings=settings, address="SASL_PLAINTEXT://127.0.0.1:0")


def _kafka(kafka: Kafka) -> AbstractContextManager[str]:
    return kafka_with_logins(kafka, SASL)


def _ours(directory: Path) -> AbstractContextManager[str]:
    return ours_with_logins(directory, SASL)


def _create(at: str, user: str) -> None:
    settings = _login("PLAIN", "erin", "erin-secret")
    with Admin({"bootstrap.servers": at, **settings}) as admin:
        for mechanism in MECHANISMS.values():
            upsertion = ScramUpsertion(user, mechanism, f"{user}-secret")
            admin.alter_user_scram_credentials([upsertion]).results()


def _login(mechanism: str, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def _refused(at: str, user: str) -> Iterator[str]:
    for mechanism in MECHANISMS:
        if error := _answer(at, _login(mechanism, user, f"{user}-secret")):
            yield f"{user} with {mechanism}: {error}"


def _answers(at: str) -> Iterator[tuple[str, str]]:
    """Logins of all kinds, and the answers to them."""
    for mechanism in MECHANISMS:
        yield f"{mechanism}, wrong password", _answer(at, _login(mechanism, "alice", "x"))
        yield f"{mechanism}, unknown user", _answer(at, _login(mechanism, "nobody", "x"))
    yield "PLAIN", _answer(at, _login("PLAIN", "erin", "erin-secret"))
    yield "PLAIN, wrong password", _answer(at, _login("PLAIN", "erin", "x"))
    yield "PLAIN, unknown user", _answer(at, _login("PLAIN", "nobody", "x"))
    for name, claims in (
        ("token", {"sub": "a", "scope": "read"}),
        ("token without the scope", {"sub": "a"}),
        ("token without a name", {"scope": "read"}),
    ):
        token = unsecured_token(claims, lifetime_s=60).value
        settings: Mapping[str, object] = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauth.token": lambda token=token: token,
        }
        yield name, _answer(at, settings)


def _answer(at: str, settings: Mapping[str, object]) -> str:
    """The error of a login; empty if there is none."""
    try:
        reader = ClusterReader(at, settings=settings)
        try:
            reader.topics()
        finally:
            reader.close()
    except TailraceError as error:
        # The address is another one each time.
        return str(error).replace(at, "ADDRESS")
    return ""
