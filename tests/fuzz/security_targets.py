"""Fuzz targets of security: texts of settings, certificates, and what HTTP endpoints answer."""

import json
import logging
import ssl
import warnings
from contextlib import suppress

from tailrace.broker.checking import Given, checked
from tailrace.cli.top.metrics import parse_samples
from tailrace.client.config import parse_client_config
from tailrace.client.nodes.oauth import expiry_of, unsecured_token
from tailrace.client.nodes.oidc import endpoint_fault, read_token
from tailrace.config import properties
from tailrace.errors import ConfigError
from tailrace.model import Principal
from tailrace.protocol.envelopes import (
    InvalidAddressError,
    client_of,
    principal_bytes,
    read_principal,
)
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.frames import NOBODY
from tailrace.protocol.messages.envelope import EnvelopeRequest
from tailrace.runtime.log_lines import LineFormatter
from tailrace.security.certificates import read_certificate
from tailrace.security.jaas import parse_jaas
from tailrace.security.principal_rules import PrincipalRules
from tailrace.security.tls_context import pem_blocks, read_pkcs12
from tailrace.server.slow_requests import read_head
from tests.fuzz.engine import FuzzTarget
from tests.unit.security.certificates import BROKER, BROKER_LOCKED_KEY, STRANGER, pkcs12

_JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="p";',
    "OAuthBearerLoginModule required /* c */ clientId='me' clientSecret=\"\\101\\n\" scope=x;",
    "OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=a unsecuredLoginListClaim_b=|c;",
    "// k\nKrb5LoginModule required useKeyTab=true keyTab='/etc/k' serviceName=kafka;",
)
_SETTINGS = (
    (
        "process.roles=broker,controller\nnode.id=7\nlog.dirs=/a,/b\nlisteners=A://:9092,C://h:1\n"
        "listener.security.protocol.map=A:SASL_SSL,C:PLAINTEXT\ncontroller.listener.names=C\n"
        "listener.name.a.ssl.keystore.location=/x\nconfig.providers=f,e\nbroker.rack=${f:a:b}\n"
        "config.providers.f.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "config.providers.e.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "config.providers.e.param.allowlist.pattern=[A-Z]+\nlog.dir=${e:HOME}"
    ),
    "log.dirs=\\u0061\\\n  b\nmax.connections.per.ip.overrides=a:1\nnum.partition=\\ud83d\nx:y",
)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def read_jaas(data: bytes) -> object:
    """Read an entry of sasl.jaas.config."""
    return parse_jaas(_text(data))


def read_login(data: bytes) -> object:
    """Read the settings of a login whose sasl.jaas.config has any text."""
    return parse_client_config(
        {
            "bootstrap.servers": "b:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": _text(data),
        }
    )


def read_settings(data: bytes) -> object:
    """Say all that is wrong with a file of settings; each sentence can be printed."""
    given = [Given(each.name, each.value, str(each.line)) for each in properties(_text(data))]
    found = checked(given)
    assert (found.config is None) == any(each.level == "error" for each in found.findings)
    for each in found.findings:
        "".join(each).encode()
    return found


def read_pem_text(data: bytes) -> object:
    """Read the blocks of a PEM text; what comes of them is read again as it is."""
    blocks = pem_blocks(_text(data))
    again = pem_blocks("".join(each.text for each in blocks))
    assert [each.label for each in again] == [each.label for each in blocks]
    return blocks


def read_keystore(data: bytes) -> object:
    """Read a PKCS12 file; the package warns of one that is BER and not DER."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return read_pkcs12(data, "secret")


def _stores() -> tuple[bytes, ...]:
    """A cut PKCS12 file and, with the package that reads them, whole ones."""
    seeds = [bytes.fromhex("3080020103308006092a864886f70d010701a0800400")]
    with suppress(ImportError):
        seeds += [pkcs12("secret", iterations=1, has_key=each) for each in (True, False)]
    return tuple(seeds)


def read_url(data: bytes) -> object:
    """Check the address of a token endpoint."""
    return endpoint_fault(_text(data))


def read_der(data: bytes) -> object:
    """Read a certificate; what is read is the same in the whole file and in a copy of it."""
    found = read_certificate(data)
    assert found == read_certificate(bytes(bytearray(data)))
    return found


def apply_rules(data: bytes) -> object:
    """Read ssl.principal.mapping.rules, and apply them to two names."""
    rules = PrincipalRules(_text(data)[:500])
    return [rules.name_of(each) for each in ("CN=Duke,OU=Staff,C=US", "CN=" + "a" * 200)]


def read_envelope_principal(data: bytes) -> object:
    """Read what a broker says of its client; what is written again reads as the same."""
    found = read_principal(data)
    assert read_principal(principal_bytes(found)) == found
    return found


def read_envelope_client(data: bytes) -> object:
    """Read an envelope whose address of the client are the first bytes."""
    request = EnvelopeRequest(client_host_address=data[:4], request_principal=data[4:])
    found = client_of(request, NOBODY)
    assert found.principal == read_principal(data[4:])
    return found


_PRINCIPALS = tuple(
    principal_bytes(Principal("User", name, is_by_token))
    for name, is_by_token in (("alice", False), ("CN=Duké," * 20, True))
)


def write_line(data: bytes) -> None:
    """Log text of a client in both formats: one line each, which has the text."""
    value = data.decode(errors="surrogateescape")
    made = logging.LogRecord("tailrace", logging.INFO, "", 0, "refused name=%s", (value,), None)
    text = LineFormatter(is_json=False).format(made)
    line = LineFormatter(is_json=True).format(made)
    assert text.isprintable()
    assert line.isprintable()
    assert json.loads(line)["name"] == value
    shown = text.partition(" refused name=")[2]
    assert (json.loads(shown) if shown[:1] == '"' else shown) == value


TARGETS = (
    FuzzTarget(
        name="text in a log line",
        seeds=(b"a b=c", "\u2028\u202e \x1b[2J\r\n".encode(), b'"\\', b""),
        run=write_line,
        refusals=(),
    ),
    FuzzTarget(
        name="first bytes of a slow request",
        seeds=(b"\0\1\0\4" + bytes(4) + b"\0\1c" + bytes(4) + b"\0\0\1\0", b"\0\x0b" + bytes(8)),
        run=lambda data: read_head(data.ljust(8, b"\0")),
        refusals=(),
    ),
    FuzzTarget(
        name="certificate",
        seeds=tuple(ssl.PEM_cert_to_DER_cert(each) for each in (BROKER, STRANGER)),
        run=read_der,
        refusals=(ValueError,),
    ),
    FuzzTarget(
        name="ssl.principal.mapping.rules",
        seeds=(b"RULE:^CN=(.*?),OU=Staff.*$/$1@x/L, RULE:(a|b)*/$1$12\\//U,DEFAULT",),
        run=apply_rules,
        refusals=(ValueError,),
        share=0.2,
    ),
    FuzzTarget(
        name="sasl.jaas.config",
        seeds=tuple(each.encode() for each in _JAAS),
        run=read_jaas,
        refusals=(ValueError,),
    ),
    FuzzTarget(
        name="login by sasl.jaas.config",
        seeds=tuple(each.encode() for each in _JAAS),
        run=read_login,
        refusals=(ConfigError,),
    ),
    FuzzTarget(
        name="PEM",
        seeds=((BROKER + BROKER_LOCKED_KEY).encode(), BROKER.replace("\n", "\\n").encode()),
        run=read_pem_text,
        refusals=(ValueError,),
    ),
    FuzzTarget(
        name="PKCS12",
        seeds=_stores(),
        run=read_keystore,
        refusals=(ValueError,),
        share=0.2,
    ),
    FuzzTarget(
        name="answer of a token endpoint",
        seeds=(
            json.dumps({"access_token": "a.b.c", "expires_in": 3600, "scope": "x"}).encode(),
            b'{"access_token": "a", "expires_in": "60"}',
        ),
        run=read_token,
        refusals=(ValueError,),
    ),
    FuzzTarget(
        name="file of settings",
        seeds=tuple(each.encode() for each in _SETTINGS),
        run=read_settings,
        refusals=(),
        share=0.2,
    ),
    FuzzTarget(
        name="JSON Web Token",
        seeds=(unsecured_token({"sub": "a"}, lifetime_s=60, wall=lambda: 7.0).value.encode(),),
        run=lambda data: expiry_of(_text(data)),
        refusals=(),
    ),
    FuzzTarget(
        name="address of a token endpoint",
        seeds=(b"https://idp.example.com:8443/oauth/token?a=b", b"http://[::1]:80/"),
        run=read_url,
        refusals=(),
    ),
    FuzzTarget(
        name="page for Prometheus",
        seeds=(
            b'kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 10.0\n',
            b'process_cpu_seconds_total 1e3 1700\ntailrace_ready{a="\\"b",c=""} NaN\n',
        ),
        run=parse_samples,
        refusals=(),
    ),
    FuzzTarget(
        name="principal of an envelope",
        seeds=_PRINCIPALS,
        run=read_envelope_principal,
        refusals=(MalformedMessageError,),
    ),
    FuzzTarget(
        name="client of an envelope",
        seeds=tuple(bytes((10, 0, 0, 1)) + each for each in _PRINCIPALS),
        run=read_envelope_client,
        refusals=(MalformedMessageError, InvalidAddressError),
    ),
)
