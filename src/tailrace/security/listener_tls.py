"""`ListenerTls`: certificate, authorities and rules of an encrypted listener, as they are now.

Not here: the sockets (`accepted`), and where the settings come from (`listener_config`).
"""

import ssl
from typing import Final

from tailrace.errors import ConfigError
from tailrace.model import ANONYMOUS, Principal
from tailrace.security.certificates import read_certificate
from tailrace.security.errors import TlsError
from tailrace.security.listener_config import ListenerTlsConfig
from tailrace.security.principal_rules import PrincipalRules
from tailrace.security.tls_context import server_context

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class ListenerTls:
    """The server's side of TLS of one listener."""

    def __init__(self, name: str, config: ListenerTlsConfig) -> None:
        """Read the files of the settings.

        Raises:
            ConfigError: a file cannot be read, a certificate or key is not usable, or settings
                contradict each other; all of them, with the listener's name.
        """
        self._name = name
        self.context, self._rules = self._opened(config)
        """`context` is for new connections; open ones keep theirs."""

    def _opened(self, config: ListenerTlsConfig) -> tuple[ssl.SSLContext, PrincipalRules]:
        faults: list[str] = []
        context = server_context(config.tls, verify_mode=_VERIFY[config.client_auth], faults=faults)
        rules = PrincipalRules("")
        try:
            rules = PrincipalRules(config.principal_mapping_rules)
        except ValueError as error:
            faults.append(f"ssl.principal.mapping.rules: {error}")
        if faults:
            raise ConfigError([f"listener {self._name}: {each}" for each in faults])
        return context, rules

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
