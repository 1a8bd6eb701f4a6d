"""Settings of all clients: Kafka's names, defaults and ranges. Times are ms, sizes bytes.

Not here: settings that only a producer has; see `producer.settings`.
"""

from typing import Final

from tailrace.config import Setting
from tailrace.config.settings import INT32_MAX, INT64_MAX

CONNECTION_SETTINGS: Final = (
    Setting(
        name="bootstrap.servers",
        default="",
        text=(
            "HOST:PORT of some brokers, with commas between; the client learns the others from "
            "them. `PLAINTEXT://HOST:PORT` is accepted if `security.protocol` is the same."
        ),
    ),
    Setting(
        name="client.id",
        default="",
        text="The name in a broker's logs and quotas; that of a producer is `producer-N` if empty.",
    ),
    Setting(
        name="request.timeout.ms",
        default=30000,
        low=0,
        high=INT32_MAX,
        text="How long a broker may take to answer before the connection is closed.",
    ),
    Setting(
        name="retry.backoff.ms",
        default=100,
        low=0,
        high=INT64_MAX,
        text="Pause before the first retry; doubled for each further one.",
    ),
    Setting(
        name="retry.backoff.max.ms",
        default=1000,
        low=0,
        high=INT64_MAX,
        text="Longest pause between retries.",
    ),
    Setting(
        name="reconnect.backoff.ms",
        default=50,
        low=0,
        high=INT64_MAX,
        text="Pause before connecting again; doubled for each failure.",
    ),
    Setting(
        name="reconnect.backoff.max.ms",
        default=1000,
        low=0,
        high=INT64_MAX,
        text="Longest pause between attempts to connect.",
    ),
    Setting(
        name="connections.max.idle.ms",
        default=540000,
        low=-1,
        high=INT64_MAX,
        text="Close a connection that was unused for so long; -1 never.",
    ),
    Setting(
        name="socket.connection.setup.timeout.ms",
        default=10000,
        low=1,
        high=INT64_MAX,
        text="How long a connection may take to be opened; doubled for each failure.",
    ),
    Setting(
        name="socket.connection.setup.timeout.max.ms",
        default=30000,
        low=1,
        high=INT64_MAX,
        text="Longest time for opening a connection.",
    ),
)
"""Addresses of the brokers, time limits and pauses."""

SECURITY_SETTINGS: Final = (
    Setting(
        name="security.protocol",
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        text="Whether connections are encrypted (SSL), and whether the client logs in (SASL).",
    ),
    Setting(
        name="sasl.mechanism",
        default="PLAIN",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        text="How the client logs in.",
    ),
    Setting(name="sasl.username", default="", text="The user's name, for SASL."),
    Setting(
        name="sasl.password",
        default="",
        text="The user's password, for SASL; never logged.",
    ),
    Setting(
        name="ssl.truststore.location",
        default="",
        text=(
            "PEM file with the authorities that brokers' certificates are checked against; "
            "the system's if empty."
        ),
    ),
    Setting(
        name="ssl.keystore.location",
        default="",
        text=(
            "PEM file with the client's certificate chain, and its key unless "
            "`ssl.key.location` has it."
        ),
    ),
    Setting(
        name="ssl.key.location",
        default="",
        text="PEM file with the client's private key.",
    ),
    Setting(
        name="ssl.key.password",
        default="",
        text="Password of the private key; never logged.",
    ),
    Setting(
        name="ssl.endpoint.identification.algorithm",
        default="https",
        choices=("https", ""),
        text="Check that a broker's certificate has the host's name (https), or not (empty).",
    ),
)
"""Encryption and login."""
