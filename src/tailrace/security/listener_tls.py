"""`ListenerTls`: certificate, authorities and rules of an encrypted listener, as they are now.

Not here: the sockets (`accepted`), and where the settings come from (`listener_config`).
"""

import contextlib
import logging
import ssl
import time
from typing import Final

from tailrace.errors import ConfigError
from tailrace.model import ANONYMOUS, Principal
from tailrace.security.certificates import Certificate, first_certificate, read_certificate
from tailrace.security.errors import TlsError
from tailrace.security.listener_config import ListenerTlsConfig
from tailrace.security.principal_rules import PrincipalRules
from tailrace.security.tls_config import TlsConfig
from tailrace.security.tls_context import server_context, tls_context
from tailrace.values import replace

logger = logging.getLogger(__name__)

EXPIRES_SOON_S: Final = 14 * 86400
"""A certificate that ends within this time is a warning."""

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class OutgoingTls:
    """The client's side: connections of this node to a listener of other nodes."""

    def __init__(self, name: str, config: ListenerTlsConfig) -> None:
        """Read the files of the settings.

        Raises:
            ConfigError: as `ListenerTls`.
        """
        self._context = _client_context(name, config.tls)

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *, server_hostname: str
    ) -> ssl.SSLObject:
        """Begin a connection, with the certificate and the authorities of this moment."""
        return self._context.wrap_bio(incoming, outgoing, server_hostname=server_hostname)

    def renew(self, other: "OutgoingTls") -> None:
        """Use the files of another one from now on."""
        self._context = other._context


class ListenerTls:
    """The server's side of TLS of one listener, on one event loop."""

    def __init__(self, name: str, config: ListenerTlsConfig) -> None:
        """Read the files of the settings.

        Raises:
            ConfigError: a file cannot be read, a certificate or key is not usable, or settings
                contradict each other; all of them, with the listener's name.
        """
        self.name = name
        self.context, self.certificate = _server_context(name, config)
        """For new connections; open ones keep theirs."""
        self._rules = PrincipalRules(config.principal_mapping_rules)

    def renew(self, other: "ListenerTls") -> None:
        """Use the certificate and the authorities of another one for new connections."""
        self.context, self.certificate = other.context, other.certificate
        self.log_certificate()

    def log_certificate(self) -> None:
        """Log the subject of the own certificate and its end; a warning if that is near."""
        now_s, own = time.time(), self.certificate
        until = time.strftime(_TIME, time.gmtime(own.not_after_s))
        if own.not_before_s <= now_s < own.not_after_s - EXPIRES_SOON_S:
            logger.info(
                "certificate_used listener=%s subject=%r until=%s", self.name, own.subject, until
            )
            return
        logger.warning(
            "certificate_%s listener=%s subject=%r valid_from=%s until=%s consequence=%s",
            "expired" if now_s >= own.not_after_s else "not_valid_yet"
            if now_s < own.not_before_s else "expires_soon",
            self.name, own.subject, time.strftime(_TIME, time.gmtime(own.not_before_s)), until,
            "clients refuse this listener outside of that time; renew its keystore",
        )  # fmt: skip

    def principal_of(self, tls: ssl.SSLObject) -> Principal:
        """The principal of a client after its handshake; anonymous without a certificate.

        Raises:
            TlsError: no rule applies to its certificate.
        """
        der = tls.getpeercert(binary_form=True)
        if der is None:
            return ANONYMOUS
        try:
            subject = read_certificate(der).subject
        except ValueError as error:
            raise TlsError(f"the certificate of the client cannot be read: {error}") from None
        name = self._rules.name_of(subject)
        if name is None:
            raise TlsError(f"no rule of ssl.principal.mapping.rules applies to {subject[:200]}")
        return Principal("User", name)


def check_together(name: str, *configs: ListenerTlsConfig) -> None:
    """Check that nodes with these settings can reach each other, which may differ for a while.

    Names of hosts are left out, as in Kafka (`SslFactory.SslEngineValidator`): other nodes have
    others.

    Raises:
        ConfigError: a node could not reach another one.
    """
    servers = [_server_context(name, each)[0] for each in configs]
    clients = [
        _client_context(name, replace(each.tls, ssl_endpoint_identification_algorithm=""))
        for each in configs
    ]
    for server in servers:
        for client in clients:
            try:
                _shake(server, client)
            except ssl.SSLError as error:
                fault = (
                    f"listener {name}: nodes with these settings cannot reach each other by it: "
                    f"{error.reason or error}; the truststore has to trust the keystore's "
                    "certificate"
                )
                raise ConfigError([fault]) from None


def _shake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    # The client speaks three times at most: its hello, another one, and the end.
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    # What a server says after its handshake, such as that it refuses the certificate.
    with contextlib.suppress(ssl.SSLWantReadError):
        ends[0].read(1)


def check_renewal(
    old: ListenerTls, new: ListenerTls, *, may_change_name: bool, may_change_hosts: bool
) -> None:
    """Check that clients take the new certificate of a listener for the same broker.

    Kafka's `SslFactory.CertificateEntries`, with the certificate that is shown.

    Raises:
        ConfigError: its subject is another, or it lacks names of hosts.
    """
    before, after = old.certificate, new.certificate
    faults = []
    if not may_change_name and before.subject != after.subject:
        faults.append(
            f"listener {old.name}: the subject of the new certificate is {after.subject!r}, and "
            f"{before.subject!r} before; ssl.allow.dn.changes=true allows that"
        )
    if not may_change_hosts and not before.alt_names <= after.alt_names:
        faults.append(
            f"listener {old.name}: the new certificate lacks names of hosts (subject alternative "
            "names) that the one before has; ssl.allow.san.changes=true allows that"
        )
    if faults:
        raise ConfigError(faults)


def _server_context(name: str, config: ListenerTlsConfig) -> tuple[ssl.SSLContext, Certificate]:
    faults: list[str] = []
    context, chain = server_context(
        config.tls, verify_mode=_VERIFY[config.client_auth], faults=faults
    )
    own = Certificate("", frozenset(), 0, 0)
    if not faults:
        try:
            own = first_certificate(chain)
        except ValueError as error:
            faults.append(f"ssl.keystore: the certificate cannot be read: {error}")
    if faults:
        raise ConfigError([f"listener {name}: {each}" for each in faults])
    return context, own


def _client_context(name: str, config: TlsConfig) -> ssl.SSLContext:
    try:
        return tls_context(config)
    except ConfigError as error:
        raise ConfigError([f"listener {name}: {each}" for each in error.faults]) from None
