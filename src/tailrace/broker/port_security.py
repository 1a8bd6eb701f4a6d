"""`port_security`: encryption and logins of a listener, from its settings."""

from tailrace.broker.config import BrokerConfig
from tailrace.broker.listeners import Listener
from tailrace.server.listener import PortSecurity


def port_security(config: BrokerConfig, listener: Listener) -> PortSecurity:
    """Encryption and logins of a listener, with the files that its settings name.

    Raises:
        ConfigError: a file cannot be read, or a certificate or key is not usable.
    """
    if not listener.is_encrypted:
        return PortSecurity()
    # Here, because ssl takes 20 ms to import and most listeners are plain.
    from tailrace.security.listener_tls import ListenerTls

    return PortSecurity(tls=ListenerTls(listener.name, config.listener_tls[listener.name]))
