"""`read_machine`: the limits and the state of a machine, as far as a node depends on them.

Read from /proc, /sys and system calls; nothing is changed, but for a socket that is bound and
closed again. What cannot be known, in a container or on another system than Linux, is None.
"""

import ctypes
import errno
import os
import pwd
import re
import resource
import socket
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.values import dataclass

Address = tuple[str, int]

_ESCAPE = re.compile(r"\\([0-7]{3})")

_TIME_ERROR = 5
"""The answer of adjtimex(2) where nothing keeps the clock right."""
_TIMEX_BYTES = 512
"""More than a `struct timex` has; all zero, it asks and sets nothing."""


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    """Its type, such as ext4."""
    options: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A log directory, or the place where one will be made."""

    path: str
    exists: bool
    is_usable: bool
    """Whether this user may write there; without the directory, in the one above that is there."""
    owner: str
    """The user who owns it, or the one above."""
    mode: int
    mount: Mount | None
    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    """None: the file system makes as many as it needs."""
    segment_count: int
    partition_count: int
    is_in_use: bool
    """Whether a node has it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, its limits for this process, and what a node needs of it."""

    python: tuple[int, int]
    """The first two numbers of the version."""
    has_kernels: bool
    """Whether the compiled modules of the package are there."""
    user: str
    descriptors_max: int
    """The hard limit; a node raises its own to it."""
    threads_max: int | None
    """The lowest limit of threads, of this user or of the control group; None: there is none."""
    memory_bytes: int | None
    """Memory of the machine."""
    memory_bytes_max: int | None
    """The limit of the control group; None: there is none."""
    cores_max: float | None
    """The quota of the control group; None: there is none."""
    swap_bytes: int | None
    swappiness: int | None
    backlog_max: int | None
    """`net.core.somaxconn`."""
    local_ports: tuple[int, int] | None
    """`net.ipv4.ip_local_port_range`."""
    reserved_ports: str = ""
    """`net.ipv4.ip_local_reserved_ports`, such as 8080,9092-9094."""
    is_clock_kept: bool | None
    """Whether something keeps the clock right, such as chronyd."""
    directories: Sequence[Directory]
    refused_ports: Mapping[Address, str]
    """Addresses that cannot be listened on, with the reason."""
    exposed_files: Sequence[str]
    """Files with secrets that every user of the machine may read."""


def read_machine(
    *,
    directories: Iterable[str],
    addresses: Iterable[Address],
    secrets: Iterable[str],
    root: str = "",
) -> Machine:
    """The machine now, with log directories, addresses to listen on and files with secrets.

    `root` is where /proc and /sys are, for tests.
    """
    kernel = _Kernel(root)
    memory = kernel.sizes("/proc/meminfo")
    refused = {each: reason for each in addresses if (reason := _refusal(each))}
    return Machine(
        python=sys.version_info[:2],
        has_kernels=_has_kernels(),
        user=_name_of(os.geteuid()),
        descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        threads_max=_threads_max(kernel),
        memory_bytes=memory.get("MemTotal"),
        memory_bytes_max=kernel.group_limit("memory", "memory.max", "memory.limit_in_bytes"),
        cores_max=_cores_max(kernel),
        swap_bytes=memory.get("SwapTotal"),
        swappiness=kernel.number("/proc/sys/vm/swappiness"),
        backlog_max=kernel.number("/proc/sys/net/core/somaxconn"),
        local_ports=_port_range(kernel),
        reserved_ports=kernel.text("/proc/sys/net/ipv4/ip_local_reserved_ports").strip(),
        is_clock_kept=_is_clock_kept(),
        directories=[_directory(each, kernel) for each in dict.fromkeys(directories)],
        refused_ports=refused,
        exposed_files=[each for each in secrets if _is_exposed(each)],
    )


class _Kernel(NamedTuple):
    """The files in which the kernel shows its state."""

    root: str

    def text(self, path: str) -> str:
        """The content of a file; empty where there is none."""
        with suppress(OSError):
            return Path(self.root + path).read_text(encoding="utf-8", errors="surrogateescape")
        return ""

    def number(self, path: str) -> int | None:
        """The number that a file consists of."""
        text = self.text(path).strip()
        return int(text) if text.isdecimal() else None

    def sizes(self, path: str) -> dict[str, int]:
        """Bytes by name, of lines such as `MemTotal:  16384 kB`."""
        found = {}
        for line in self.text(path).splitlines():
            name, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdecimal():
                found[name] = int(words[0]) * 1024
        return found

    def group_texts(self, controller: str, name: str, old_name: str) -> list[str]:
        """The content of a file in the control group of this process, and in those above it.

        `old_name` is that of version 1, where each controller has a hierarchy of its own.
        """
        found = []
        for line in self.text("/proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            mounted = f"/sys/fs/cgroup/{controllers}".rstrip("/")
            file = old_name if controllers else name
            # In a container the path may be that of the host, and the root what is mounted.
            while path.rstrip("/"):
                found.append(self.text(f"{mounted}{path}/{file}").strip())
                path = path.rpartition("/")[0]
            found.append(self.text(f"{mounted}/{file}").strip())
        return [each for each in found if each]

    def group_limit(self, controller: str, name: str, old_name: str) -> int | None:
        """The lowest of these limits; None: there is none."""
        texts = self.group_texts(controller, name, old_name)
        limits = [int(each) for each in texts if each.isdecimal()]
        # Version 1 has a number of 63 bits where there is no limit.
        return min((each for each in limits if each < 1 << 60), default=None)


def _has_kernels() -> bool:
    try:
        import tailrace.kernels  # noqa: F401
    except ImportError:
        return False
    return True


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _cores_max(kernel: _Kernel) -> float | None:
    # Version 1 has the quota and its period in two files.
    quotas = [each.split() for each in kernel.group_texts("cpu", "cpu.max", "-")]
    cores = [
        int(each[0]) / int(each[1])
        for each in quotas
        if len(each) == 2 and each[0].isdecimal() and each[1].isdecimal()
    ]
    return min(cores, default=None)


def _threads_max(kernel: _Kernel) -> int | None:
    limits = [
        resource.getrlimit(resource.RLIMIT_NPROC)[0],
        kernel.group_limit("pids", "pids.max", "pids.max"),
    ]
    known = [each for each in limits if each is not None and each != resource.RLIM_INFINITY]
    return min(known, default=None)


def _port_range(kernel: _Kernel) -> tuple[int, int] | None:
    words = kernel.text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else None


def _is_clock_kept() -> bool | None:
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else bool(state != _TIME_ERROR)


def _refusal(address: Address) -> str:
    """Why nobody can listen at an address; empty if it is possible."""
    host, port = address
    try:
        family, kind, protocol, _, found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trying:
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trying.bind(found)
            trying.listen(1)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    # A name with an empty or a long label, as a..b, is refused before anybody is asked for it.
    except UnicodeError:
        return "name or service not known"
    return ""


def _is_exposed(path: str) -> bool:
    """Whether every user may read a file: also each folder on the way to it lets him through."""
    with suppress(OSError):
        # Not `Path.resolve`, whose error for links in a circle is no OSError before Python 3.13.
        place = Path(os.path.realpath(path, strict=True))
        may_enter = all(each.stat().st_mode & stat.S_IXOTH for each in place.parents)
        return may_enter and bool(place.stat().st_mode & stat.S_IROTH)
    return False


def _directory(path: str, kernel: _Kernel) -> Directory:
    place = os.path.realpath(path)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    status, volume = os.stat(place), os.statvfs(place)
    exists = os.path.isdir(path)
    partitions, segments = _content(path) if exists else (0, 0)
    return Directory(
        path=path,
        exists=exists,
        # A file in its place is in the way.
        is_usable=(exists or not os.path.lexists(path))
        and os.access(place, os.W_OK | os.X_OK | (os.R_OK if exists else 0)),
        owner=_name_of(status.st_uid),
        mode=stat.S_IMODE(status.st_mode),
        mount=_mount_of(place, kernel),
        free_bytes=volume.f_bavail * volume.f_frsize,
        total_bytes=volume.f_blocks * volume.f_frsize,
        free_inodes=volume.f_favail if volume.f_files else None,
        segment_count=segments,
        partition_count=partitions,
        is_in_use=exists and _is_in_use(path),
    )


def _content(path: str) -> tuple[int, int]:
    """The numbers of partitions and of their segments, as far as this user may see them."""
    partitions = segments = 0
    with suppress(OSError):
        for folder in os.scandir(path):
            if folder.is_dir() and folder.name.rpartition("-")[2].isdecimal():
                partitions += 1
                with suppress(OSError):
                    segments += sum(each.endswith(".log") for each in os.listdir(folder.path))
    return partitions, segments


def _is_in_use(path: str) -> bool:
    """Whether another process has the lock of a log directory; it is not taken for that."""
    # A file that this user may not read says nothing.
    with suppress(OSError), Path(path, ".lock").open("rb") as lock:
        try:
            os.lockf(lock.fileno(), os.F_TEST, 0)
        except OSError as error:
            return error.errno in (errno.EACCES, errno.EAGAIN)
    return False


def _mount_of(path: str, kernel: _Kernel) -> Mount | None:
    """The mount that a path is on: the last one of those with the longest mount point."""
    found = None
    # By single characters: a name may have any other space, and any other end of a line.
    for line in filter(None, kernel.text("/proc/self/mountinfo").split("\n")):
        own, _, rest = line.partition(" - ")
        fields, (kind, _, options) = own.split(" "), rest.split(" ", 2)
        # The kernel writes spaces and some others as \040, and all else as it is.
        point = _ESCAPE.sub(lambda each: chr(int(each[1], 8)), fields[4])
        is_above = path == point or path.startswith(f"{point.rstrip('/')}/")
        if is_above and (found is None or len(point) >= len(found.point)):
            all_options = [*fields[5].split(","), *options.split(",")]
            found = Mount(point, kind, frozenset(all_options))
    return found
