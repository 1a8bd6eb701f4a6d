"""Listeners with TLS and logins for a broker that is measured or attacked, and clients for them.

The certificate and the passwords are those of the tests, and public. Kafka takes the same lines.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from compat.processes import free_ports
from tests.unit.security.certificates import BROKER, BROKER_KEY

USER: Final = "alice"
PASSWORD: Final = "secret"
SCRAM: Final = "SCRAM-SHA-256"
_MODULES: Final = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """Ports of a broker by the protocol of their listener, and the files with its certificate."""

    plaintext: int
    ssl: int
    sasl_plaintext: int
    sasl_ssl: int
    keystore: Path
    truststore: Path

    @classmethod
    def make(cls, directory: Path) -> "Secured":
        """Free ports, and files in this directory."""
        keystore, truststore = directory / "broker.pem", directory / "ca.pem"
        keystore.write_text(BROKER + BROKER_KEY)
        truststore.write_text(BROKER)
        plaintext, ssl, sasl_plaintext, sasl_ssl = free_ports(4)
        return cls(plaintext, ssl, sasl_plaintext, sasl_ssl, keystore, truststore)

    def port_of(self, protocol: str) -> int:
        """The port of the listener with this protocol."""
        port: int = getattr(self, protocol.lower())
        return port

    @property
    def listeners(self) -> str:
        """The four, the plain one first."""
        return ",".join(f"{name.upper()}://127.0.0.1:{self.port_of(name)}" for name in PROTOCOLS)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a broker of ours or of Kafka, but for `listeners`."""
        plain = (
            f"{_MODULES}.plain.PlainLoginModule required "
            f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        )
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        own = {
            f"listener.name.{name}.{mechanism}.sasl.jaas.config": entry
            for name in ("sasl_plaintext", "sasl_ssl")
            for mechanism, entry in (("plain", plain), (SCRAM.lower(), scram))
        }
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore),
            "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
            **own,
        }

    def client_settings(self, protocol: str) -> dict[str, str]:
        """The settings of a client of librdkafka that logs in by PLAIN where it has to."""
        found = {"bootstrap.servers": f"127.0.0.1:{self.port_of(protocol)}"}
        found["security.protocol"] = protocol
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.truststore)
        if protocol.startswith("SASL"):
            found |= {
                "sasl.mechanism": "PLAIN",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        return found


PROTOCOLS: Final = Secured._fields[:4]


def renamed(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka by the names of Java, which our clients take."""
    names = {"ssl.ca.location": "ssl.truststore.location"}
    return {names.get(name, name): text for name, text in settings.items()}
