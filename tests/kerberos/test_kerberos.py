"""GSSAPI with a real KDC of MIT Kerberos on this machine, and an acceptor by the same library.

It needs the package gssapi (`pip install gssapi`, which needs libkrb5-dev on Debian) and the
programs of a KDC (Debian: krb5-kdc, krb5-admin-server).
"""

from importlib import import_module
from typing import Any

import pytest

from tailrace.client.config import parse_client_config
from tailrace.client.nodes import AuthenticationError
from tailrace.client.nodes.kerberos import KerberosLogin
from tailrace.client.nodes.sasl import Blocking, Tokens
from tests.kerberos.realm import USER, Realm

gssapi: Any = import_module("gssapi")

pytestmark = pytest.mark.wire


def after_work(tokens: Tokens, step: bytes | Blocking) -> bytes:
    """The client's next token; its work is done here."""
    while isinstance(step, Blocking):
        step = tokens.send(step.run())
    return step


def accepted(login: KerberosLogin) -> str:
    """Log in to a broker at localhost; returns the name that it sees."""
    name = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
    credentials = gssapi.Credentials(name=name, usage="accept")
    broker = gssapi.SecurityContext(creds=credentials, usage="accept")
    tokens = login.tokens("localhost")
    token = after_work(tokens, next(tokens))
    while not broker.complete:
        answer = broker.step(token) or b""
        token = after_work(tokens, tokens.send(answer))
    assert token == b""
    layers = broker.wrap(b"\x01\x00\x00\x00", False).message  # noqa: FBT003
    last = after_work(tokens, tokens.send(layers))
    said = broker.unwrap(last).message
    with pytest.raises(StopIteration):
        tokens.send(b"")
    assert said == b"\x01\x00\x00\x00" + str(broker.initiator_name).encode()
    return str(broker.initiator_name)


def test_a_keytab_logs_in(realm: Realm) -> None:
    """With keytab and principal, tickets are fetched without kinit, and the service accepts."""
    login = KerberosLogin(service_name="kafka", principal=USER, keytab=str(realm.user_keytab))
    assert accepted(login) == USER


def test_a_ticket_of_kinit_logs_in(realm: Realm) -> None:
    """Without a keytab, the ticket in the cache is used."""
    realm.run("kinit", "-k", "-t", str(realm.user_keytab), USER)
    assert accepted(KerberosLogin(service_name="kafka")) == USER


@pytest.mark.parametrize(
    ("service", "has_ticket", "said"),
    [("kafka", False, "get a ticket with kinit"), ("nowhere", True, "sasl.kerberos.service.name")],
)
def test_a_login_without_a_ticket_is_told(
    realm: Realm, service: str, *, has_ticket: bool, said: str
) -> None:
    """No ticket, and a service that the KDC does not know, are errors with the remedy."""
    if has_ticket:
        realm.run("kinit", "-k", "-t", str(realm.user_keytab), USER)
    tokens = KerberosLogin(service_name=service).tokens("localhost")
    step = next(tokens)
    assert isinstance(step, Blocking)
    with pytest.raises(AuthenticationError, match=said):
        step.run()


def test_kerberos_may_come_from_jaas() -> None:
    """Options of Krb5LoginModule stand for the settings; those without effect are taken."""
    text = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        'keyTab="/etc/me.keytab" principal="me@EXAMPLE.COM" serviceName="kafka";'
    )
    given = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": text,
    }
    assert parse_client_config(given).open_security().login == KerberosLogin(
        service_name="kafka", principal="me@EXAMPLE.COM", keytab="/etc/me.keytab"
    )
