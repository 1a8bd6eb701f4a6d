"""A network of hosts on this machine, each of which can be cut off: Linux namespaces on a bridge.

    with Network() as network:
        host = network.join(1)
        Popen([*host.prefix, ...])      runs there, at host.address, which we and all hosts reach
        host.cut()                      packets to it and from it are dropped, connections stay open
        host.heal()

Needs root, and Debian's packages iproute2 and util-linux. A namespace lives as long as the process
that holds it, and with it its links: nothing is left of a run that was killed.
"""

import os
import shutil
import subprocess
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Self

from compat.processes import START_SECONDS_MAX, bound_to_us, run

_OURS = 254
"""The last byte of our own address; those of hosts are their numbers."""
_FORWARDING, _DISABLED = "3", "0"
"""States of a port of a bridge. A disabled one swallows packets, and peers have to time out; a link
that is down would tell them at once."""


def is_possible() -> bool:
    """Whether this user may make networks on this machine."""
    programs = ("ip", "bridge", "unshare", "nsenter")
    return os.geteuid() == 0 and all(map(shutil.which, programs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A place where programs run."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """The beginning of the command of a program that runs here."""
    _port: tuple[str, ...] = field(default=(), repr=False)

    @property
    def can_be_cut_off(self) -> bool:
        """Whether it has a link of its own."""
        return bool(self._port)

    def cut(self) -> None:
        """Drop all packets to and from this host; programs on it reach each other."""
        _ip([*self._port, "state", _DISABLED])

    def heal(self) -> None:
        """Carry packets again."""
        _ip([*self._port, "state", _FORWARDING])


LOOPBACK = Host()
"""This machine, which cannot be cut off."""


class Network(AbstractContextManager["Network"]):
    """A bridge, and the hosts around it."""

    def __enter__(self) -> Self:
        self._holders: list[subprocess.Popen[bytes]] = []
        self._is_linked = False
        # 198.18.0.0/15 is for tests (RFC 2544). Two runs at once have different thirds.
        self._prefix = f"198.18.{os.getpid() % 256}"
        try:
            self._bridge = self._hold()
            self._link = link = f"compat{os.getpid()}"[:15]
            _ip([*self._bridge, "ip", "link", "add", "bridge", "type", "bridge"])
            _ip([*self._bridge, "ip", "link", "set", "bridge", "up"])
            self._connect("ours", link, ())
            self._is_linked = True
            _ip(["ip", "address", "add", f"{self._prefix}.{_OURS}/24", "dev", link])
            _ip(["ip", "link", "set", link, "up"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_linked:
            # At once: with a namespace it goes some time after the process, and the next network
            # of this process has a link of this name.
            _ip(["ip", "link", "delete", self._link])
        for each in self._holders:
            each.kill()
            each.wait()

    def join(self, number: int) -> Host:
        """Add a host; numbers are from 1 to 253."""
        prefix, address = self._hold(), f"{self._prefix}.{number}"
        port = f"host{number}"
        self._connect(port, "eth0", prefix)
        _ip([*prefix, "ip", "address", "add", f"{address}/24", "dev", "eth0"])
        for link in ("lo", "eth0"):
            _ip([*prefix, "ip", "link", "set", link, "up"])
        return Host(
            address=address,
            prefix=prefix,
            _port=(*self._bridge, "bridge", "link", "set", "dev", port),
        )

    def _hold(self) -> tuple[str, ...]:
        """Make a namespace; what begins the commands that run in it."""
        # `cat` ends with its input, should `setpriv` be missing.
        command = bound_to_us(["unshare", "--net", "sh", "-c", "echo; exec cat"])
        holder = subprocess.Popen(  # noqa: S603 - programs of the system
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        holder.stdout.readline()
        return ("nsenter", "--net", "--target", str(holder.pid))

    def _connect(self, port: str, link: str, prefix: tuple[str, ...]) -> None:
        """Lay a cable from a port of the bridge to a namespace, or to us."""
        holder = prefix[-1] if prefix else str(os.getpid())
        peer = ("peer", "name", link, "netns", holder)
        _ip([*self._bridge, "ip", "link", "add", port, "type", "veth", *peer])
        _ip([*self._bridge, "ip", "link", "set", port, "master", "bridge", "up"])


def _ip(command: list[str]) -> None:
    run(command, name=" ".join(command), seconds_max=START_SECONDS_MAX)
