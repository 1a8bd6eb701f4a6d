"""Clients log in to a broker of ours with Kerberos, at a real KDC."""

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

from tailrace import Broker, Producer
from tailrace.client.errors import NodeError
from tailrace.client.nodes import AuthenticationError
from tailrace.client.nodes.kerberos import KerberosLogin
from tailrace.security.audit import AUDIT
from tailrace.security.exchange import Granted, RefusedLoginError
from tailrace.security.gssapi import Gssapi, realm_of
from tailrace.security.kerberos_names import NameRules
from tests.kerberos.realm import (
    ADMIN,
    OTHER_SERVICE,
    REALM,
    SERVICE,
    SERVICE_BY_ADDRESS,
    USER,
    Realm,
)
from tests.unit.security.exchanges import Running, log_in
from tests.wire.clients import TIMEOUT_S

gssapi: Any = import_module("gssapi")

pytestmark = pytest.mark.wire

LISTENER = "listener.name.sasl_plaintext.gssapi"
KCAT = shutil.which("kcat")


def serving(realm: Realm, *, principal: str = SERVICE_BY_ADDRESS, rules: str = "DEFAULT") -> Broker:
    """A broker whose clients log in with Kerberos."""
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{realm.service_keytab}" principal="{principal}";'
    )
    return Broker(
        listen="SASL_PLAINTEXT://127.0.0.1:0",
        settings={
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            f"{LISTENER}.sasl.jaas.config": jaas,
            f"{LISTENER}.sasl.kerberos.principal.to.local.rules": rules,
        },
    )


def send(broker: Broker, **settings: object) -> int:
    """Log in, and send a record; returns its offset."""
    login: dict[str, object] = {
        "bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka",
        "max_block_ms": 20_000,
    }  # fmt: skip
    with Producer(login | settings) as producer:
        return producer.send("t", b"v").result(TIMEOUT_S).offset


@contextmanager
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Have the log of logins, also of those that are granted."""
    with caplog.at_level(logging.DEBUG, AUDIT.name):
        yield


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "bob"),
        (r"RULE:[2:$1;$2](^.*;admin$)s/;admin$/-root/U", "BOB-ROOT"),
        (r"RULE:[1:$1],RULE:[2:$2-$0]", f"admin-{REALM}"),
    ],
)
def test_a_principal_becomes_a_user_by_the_rules(
    realm: Realm, caplog: pytest.LogCaptureFixture, rules: str, name: str
) -> None:
    """Our producer logs in with a keytab, and is the user that the listener's rules make."""
    with logged(caplog), serving(realm, rules=rules) as broker:
        offset = send(
            broker, sasl_kerberos_principal=ADMIN, sasl_kerberos_keytab=str(realm.admin_keytab)
        )
    assert offset == 0
    assert f"listener=SASL_PLAINTEXT mechanism=GSSAPI user={name}\n" in caplog.text


def test_a_broker_without_a_realm_has_that_of_the_system(
    realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    """A principal as Java takes it, without a realm, is of the realm of krb5.conf."""
    assert (realm_of(SERVICE), realm_of("kafka/127.0.0.1")) == (REALM, REALM)
    with logged(caplog), serving(realm, principal="kafka/127.0.0.1") as broker:
        send(broker, sasl_kerberos_principal=USER, sasl_kerberos_keytab=str(realm.user_keytab))
    assert "user=alice\n" in caplog.text


@pytest.mark.skipif(KCAT is None, reason="needs librdkafka with GSSAPI: Debian's kcat")
def test_librdkafka_logs_in(realm: Realm, caplog: pytest.LogCaptureFixture) -> None:
    """Debian's kcat writes and reads with a keytab; its librdkafka gets the ticket by kinit."""
    assert KCAT is not None
    with logged(caplog), serving(realm) as broker:
        login = [
            KCAT, "-b", broker.bootstrap_servers, "-t", "t",
            "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI",
            "-X", f"sasl.kerberos.keytab={realm.user_keytab}",
            "-X", f"sasl.kerberos.principal={USER}",
        ]  # fmt: skip
        realm.run(*login, "-P", given=b"of librdkafka")
        assert realm.run(*login, "-C", "-e", "-q") == "of librdkafka\n"
    assert "mechanism=GSSAPI user=alice\n" in caplog.text


@pytest.mark.parametrize(
    ("rules", "service", "said"),
    [
        ("RULE:[1:$1]", "kafka", f"user='{ADMIN}' reason=no rule of sasl.kerberos.principal"),
        ("DEFAULT", "other", "reason=Kerberos: "),
    ],
)
def test_a_login_that_is_refused_ends_soon_and_has_a_reason(
    realm: Realm, caplog: pytest.LogCaptureFixture, rules: str, service: str, said: str
) -> None:
    """The operator reads the principal and the reason; the client that its login has failed."""
    with (
        logged(caplog),
        serving(realm, rules=rules) as broker,
        pytest.raises(AuthenticationError, match="refused") as refused,
    ):
        send(
            broker, sasl_kerberos_principal=ADMIN, sasl_kerberos_keytab=str(realm.admin_keytab),
            sasl_kerberos_service_name=service,
        )  # fmt: skip
    assert said in caplog.text
    assert "rule" not in str(refused.value)
    assert OTHER_SERVICE not in str(refused.value)


def test_a_principal_that_the_realm_does_not_know(realm: Realm) -> None:
    """A client whose principal was removed from the realm gets no ticket, and says so."""
    realm.run("kadmin.local", "-r", REALM, "delprinc", "-force", USER)
    with serving(realm) as broker, pytest.raises(NodeError, match="Kerberos") as refused:
        send(broker, sasl_kerberos_principal=USER, sasl_kerberos_keytab=str(realm.user_keytab))
    assert "not found" in str(refused.value)


def test_a_broker_without_its_key_says_so(realm: Realm, caplog: pytest.LogCaptureFixture) -> None:
    """A principal that is not in the keytab is the broker's own fault, in its log."""
    with (
        logged(caplog),
        serving(realm, principal=f"kafka/elsewhere@{REALM}") as broker,
        pytest.raises(AuthenticationError),
    ):
        send(broker, sasl_kerberos_principal=USER, sasl_kerberos_keytab=str(realm.user_keytab))
    assert "check principal and keyTab of Krb5LoginModule" in caplog.text


def mechanism(realm: Realm) -> Gssapi:
    """The broker's side alone."""
    return Gssapi(principal=SERVICE, keytab=str(realm.service_keytab), names=NameRules(realm=REALM))


def test_a_ticket_that_has_expired_is_refused(realm: Realm) -> None:
    """A token that was kept until its ticket ended logs nobody in."""
    realm.run("kinit", "-l", "2s", "-k", "-t", str(realm.user_keytab), USER)
    ends = time.time() + 2
    context = gssapi.SecurityContext(
        name=gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service), usage="initiate"
    )
    kept = context.step()
    # A second of clock skew; the ticket may end in a fraction of one.
    while time.time() < ends + 3:
        realm.run("klist")
    with pytest.raises(RefusedLoginError, match=r"expired|[Cc]lock skew"):
        Running(mechanism(realm).exchange(kept)).take()


def test_a_token_cannot_be_used_twice(realm: Realm) -> None:
    """A login that was recorded cannot be repeated: the library keeps the tokens it has seen."""
    realm.run("kinit", "-k", "-t", str(realm.user_keytab), USER)
    taken: list[bytes] = []

    def recorded(first: bytes) -> Any:
        taken.append(first)
        return mechanism(realm).exchange(first)

    login = KerberosLogin(service_name="kafka")
    found, _ = log_in(login.tokens("localhost"), recorded)
    assert found == Granted("alice")
    with pytest.raises(RefusedLoginError, match="replay"):
        Running(mechanism(realm).exchange(taken[0])).take()


@pytest.mark.parametrize(
    "first", [b"", b"\x60", b"\x60\x84\xff\xff\xff\xff", b"NTLMSSP\0" + bytes(40), bytes(100_000)]
)
def test_what_is_no_token_is_refused(realm: Realm, first: bytes) -> None:
    """Bytes that are no token of Kerberos end in a refusal with the library's reason."""
    with pytest.raises(RefusedLoginError, match=r"^Kerberos: "):
        Running(mechanism(realm).exchange(first)).take()


def test_other_mechanisms_of_the_system_are_refused(realm: Realm) -> None:
    """A client cannot choose among mechanisms by SPNEGO, though it would choose Kerberos."""
    realm.run("kinit", "-k", "-t", str(realm.user_keytab), USER)
    context = gssapi.SecurityContext(
        name=gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service),
        mech=gssapi.OID.from_int_seq("1.3.6.1.5.5.2"),
        usage="initiate",
    )
    with pytest.raises(RefusedLoginError, match=r"^Kerberos: "):
        Running(mechanism(realm).exchange(context.step())).take()
