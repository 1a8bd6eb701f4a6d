"""Parser for Kafka's `listeners` and `advertised.listeners`.

    PLAINTEXT://:9092,CONTROLLER://:9093     the listeners of a controller are left out
    127.0.0.1:9092                           without a name it is PLAINTEXT

Invariant: a listener that Kafka would encrypt, or ask for a login, is refused.
"""

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from tailrace.values import dataclass

Address = tuple[str, int]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class _Listener(NamedTuple):
    name: str
    text: str
    """The listener as the setting gives it."""
    address: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerNames:
    """The settings that give a listener's name its meaning: controllers and security protocols."""

    controllers: tuple[str, ...]
    """`controller.listener.names`."""
    protocols: tuple[str, ...]
    """`listener.security.protocol.map`: NAME:PROTOCOL."""

    def is_plaintext(self, name: str) -> bool:
        """Whether bytes go over a listener as they are.

        Raises:
            ValueError: the name is none of a protocol, and not in the map.
        """
        mapped = dict(each.upper().split(":", 1) for each in self.protocols if ":" in each)
        if name not in mapped and name not in _PROTOCOLS:
            raise ValueError(
                f"listener.security.protocol.map does not say what {name} is; add {name}:PLAINTEXT"
            )
        return mapped.get(name, name).strip() == "PLAINTEXT"


def plan_addresses(
    listeners: str, advertised: str, *, names: ListenerNames, faults: list[str]
) -> tuple[str, Address, Address | None]:
    """The listener's name, the address to listen on, and the advertised one if it differs.

    An advertised address without a host, which is the name of this machine, has an empty one.
    Errors are appended to `faults`; ignore the addresses if there are any.
    """
    count = len(faults)
    listening = _parse("listeners", listeners, names=names, faults=faults)
    named = _parse("advertised.listeners", advertised, names=names, faults=faults)
    # Kafka's default file names one for clients and one for the controller, which is left out.
    if len(listening) > 1:
        faults.append(
            f"listeners: this broker listens on one address, and {_texts(listening)} are "
            f"{len(listening)}; keep one of them"
        )
    if not listening:
        if len(faults) == count:
            faults.append(
                "listeners: no listener is for clients; add one, such as PLAINTEXT://:9092"
            )
        return "", ("", 0), None
    listener = listening[0]
    # As in Kafka the two lists belong together by name. One alone may have another name: with one
    # listener there is nothing to confuse.
    chosen = [each for each in named if each.name == listener.name] if len(named) > 1 else named
    if len(chosen) != 1 and named:
        faults.append(
            f"advertised.listeners: which of {_texts(named)} is that of {listener.text}; keep one"
        )
        return listener.name, listener.address, None
    return (
        listener.name,
        listener.address,
        _advertised(chosen[0], faults) if chosen else None,
    )


def parse_address(text: str) -> Address:
    """Host and port of `HOST:PORT`, `[V6]:PORT` or `:PORT` (all addresses).

    Raises:
        ValueError: none of these; the message says what is expected.
    """
    host, colon, port = text.rpartition(":")
    # From the right: an IPv6 address has colons of its own.
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - as asked for


def _parse(name: str, text: str, *, names: ListenerNames, faults: list[str]) -> list[_Listener]:
    """Listeners of clients, in their order."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        scheme, _, address = part.rpartition("://")
        scheme = scheme.upper() or "PLAINTEXT"
        if scheme in map(str.upper, names.controllers):
            continue
        try:
            # To serve it without would send the records of a client that asks for encryption in
            # the clear.
            if not names.is_plaintext(scheme):
                raise ValueError(
                    f"{part!r} wants encryption or a login; only PLAINTEXT is supported"
                )
            found.append(_Listener(scheme, part, parse_address(address)))
        except ValueError as error:
            faults.append(f"{name}: {error}")
    return found


def _advertised(listener: _Listener, faults: list[str]) -> Address:
    host, port = listener.address
    if listener.text.rpartition("://")[2].startswith(":"):
        return "", port
    with suppress(ValueError):  # It is a name.
        # Kafka refuses only 0.0.0.0 in this form. A client that is sent to any of these connects
        # to its own machine, if at all.
        if ipaddress.ip_address(host).is_unspecified:
            faults.append(
                f"advertised.listeners: clients cannot connect to {host}, which stands for all "
                "addresses of a machine; give a name or an address of this one, or leave the host "
                f"out, as in :{port}, for the name that it has"
            )
    return host, port


def _texts(listeners: Iterable[_Listener]) -> str:
    return ", ".join(each.text for each in listeners)
