"""`ServiceManager`: systemd as the parent of this process, or another one with its protocols.

    NOTIFY_SOCKET                   takes datagrams such as READY=1, see sd_notify(3)
    WATCHDOG_USEC, WATCHDOG_PID     how often WATCHDOG=1 is expected, see sd_watchdog_enabled(3)
    LISTEN_FDS, LISTEN_PID,
    LISTEN_FDNAMES                  sockets from descriptor 3 on, see sd_listen_fds(3)

Without these variables nothing is sent and nothing inherited.
"""

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

from tailrace.errors import ListenError

logger = logging.getLogger(__name__)

FIRST_DESCRIPTOR: Final = 3
SEND_S: Final = 1.0
"""Longest wait for a service manager that does not read; it would stop the event loop."""


class ServiceManager:
    """The service manager that has started this process, if one has."""

    def __init__(
        self,
        sending: socket.socket | None,
        address: str,
        *,
        watchdog_s: float | None,
        sockets: Mapping[str, socket.socket],
    ) -> None:
        """`sending` is for datagrams to `address`; None: nobody receives any."""
        self._socket = sending
        self._address = address
        self._has_failed = False
        self.watchdog_s = watchdog_s
        """Time after which a process that has not sent WATCHDOG=1 is killed; None: it never is."""
        self.sockets = sockets
        """The listening sockets that it has opened for this process, by name."""

    @property
    def is_there(self) -> bool:
        """Whether anybody receives what is sent."""
        return self._socket is not None

    def notify(self, *assignments: str) -> None:
        """Send assignments such as READY=1 and STATUS=text; an error is logged once."""
        if self._socket is None:
            return
        message = "\n".join(each.replace("\n", " ") for each in assignments)
        try:
            self._socket.sendto(message.encode(errors="replace"), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    "service_manager_not_notified notification=%s reason=%s", message, error
                )
            self._has_failed = True

    def close(self) -> None:
        """Send no more; the inherited sockets stay open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def open_service_manager(
    environment: Mapping[str, str], *, first_descriptor: int = FIRST_DESCRIPTOR
) -> ServiceManager:
    """The service manager that has started this process, of which `environment` is.

    Raises:
        ListenError: what was inherited are no listening TCP sockets with names of their own.
    """
    path = environment.get("NOTIFY_SOCKET", "")
    # Before another socket is made, which might get the number of one that should be there.
    sockets = _inherited(environment, first_descriptor)
    sending = None
    if path:
        # Kept open: a process without free descriptors has to say that it lives, too.
        sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sending.settimeout(SEND_S)
    return ServiceManager(
        sending,
        f"\0{path[1:]}" if path.startswith("@") else path,
        watchdog_s=_watchdog_s(environment),
        sockets=sockets,
    )


def _is_for_another(environment: Mapping[str, str], name: str) -> bool:
    # Variables are inherited by processes for which they are not meant.
    return environment.get(name, str(os.getpid())) != str(os.getpid())


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    text = environment.get("WATCHDOG_USEC", "")
    if not text.isdecimal() or not int(text) or _is_for_another(environment, "WATCHDOG_PID"):
        return None
    return int(text) / 1e6


def _inherited(environment: Mapping[str, str], first: int) -> dict[str, socket.socket]:
    count = environment.get("LISTEN_FDS", "")
    # Unlike WATCHDOG_PID it has to be there: descriptors from 3 on may be anything.
    if not count.isdecimal() or environment.get("LISTEN_PID") != str(os.getpid()):
        return {}
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    found: dict[str, socket.socket] = {}
    for number, descriptor in enumerate(range(first, first + int(count))):
        name = names[number] if number < len(names) else ""
        place = f"socket {name or descriptor} of the service manager"
        try:
            taken = socket.socket(fileno=descriptor)
            taken.set_inheritable(False)
            is_listening = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise ListenError(f"{place}: {error}; LISTEN_FDS={count} counts no sockets") from None
        if not is_listening or taken.family not in (socket.AF_INET, socket.AF_INET6):
            taken.close()
            raise ListenError(
                f"{place}: no TCP socket that listens; the socket unit needs "
                "ListenStream=HOST:PORT, and no Accept=yes"
            )
        if name in found:
            raise ListenError(
                f"{place}: there are two with this name; each listener has a socket unit of its "
                "own, with one ListenStream= and the listener's name as FileDescriptorName="
            )
        taken.settimeout(0)
        found[name] = taken
    return found
