"""`checks`: a machine as an operator would look at it, before a node runs there.

Each check has a reason that holds for this broker. So these are not there:

    vm.max_map_count             logs are read by calls and not by maps (decision 19)
    transparent huge pages       nothing was measured that they change
    noatime                      relatime, which is the kernel's default, writes no more
    vm.dirty_ratio, schedulers   a device that is too slow is too slow with each of them
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from tailrace.broker.config import BrokerConfig
from tailrace.config.providers import referred_files
from tailrace.config.settings import INT64_MAX, is_secret_name
from tailrace.runtime.machine import Directory, Machine
from tailrace.runtime.network import BACKLOG
from tailrace.runtime.threads import WORKERS_MAX

PYTHONS: Final = ((3, 11), (3, 14))
"""The first and the last version that the package is tested with."""
BASE_BYTES: Final = 100 << 20
"""Memory of a node without connections, with all its code."""
CONNECTION_BYTES: Final = 64 << 10
"""Memory that a connection holds for requests."""
OTHER_DESCRIPTORS: Final = 100
"""Descriptors that are for no log and no client: libraries, the event loop, other nodes."""
FREE_INODES_MIN: Final = 10_000
SWAPPINESS_MAX: Final = 10
REMOTE: Final = frozenset({
    "9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "lustre", "nfs",
    "nfs4", "smb3", "smbfs",
})  # fmt: skip
"""Types of file systems that are on other machines."""
IN_MEMORY: Final = frozenset(("tmpfs", "ramfs"))

Level = Literal["ok", "warn", "fail"]


class Check(NamedTuple):
    """The outcome of one look at the machine."""

    level: Level
    """`fail`: the node does not start, or loses what it has; `warn`: a bad day will come."""
    name: str
    text: str
    """The reason, with the values that were found."""
    advice: str = ""
    """The command to type, or the setting to change; empty if all is well."""


def checks(machine: Machine, config: BrokerConfig) -> Iterator[Check]:
    """All checks of a machine for a node with these settings; pure."""
    yield _python(machine)
    yield _kernels(machine)
    yield _descriptors(machine, config)
    yield from _threads(machine)
    yield from _memory(machine, config)
    yield from _cores(machine)
    yield from _swap(machine)
    yield from _clock(machine)
    yield from _backlog(machine)
    yield from _ports(machine, config)
    for directory in machine.directories:
        yield from _directory(directory, machine, config)
    yield from _shared_volumes(machine)
    for path in machine.exposed_files:
        yield Check(
            "warn", "secrets", f"{path} has secrets, and every user may read it", f"chmod o= {path}"
        )


def _python(machine: Machine) -> Check:
    version = "{}.{}".format(*machine.python)
    first, last = PYTHONS
    if first <= machine.python <= last:
        return Check("ok", "python", f"Python {version}")
    return Check(
        "warn",
        "python",
        f"Python {version} is not one that this release was tested with",
        "use Python {}.{} to {}.{}".format(*first, *last),
    )


def _kernels(machine: Machine) -> Check:
    if machine.has_kernels:
        return Check("ok", "kernels", "compiled")
    return Check(
        "fail",
        "kernels",
        "the compiled modules are not there, and nothing works without them",
        "pip install --force-reinstall tailrace",
    )


def _descriptors(machine: Machine, config: BrokerConfig) -> Check:
    connections = config.connection_limits.connections_max
    segments = sum(each.segment_count for each in machine.directories)
    partitions = sum(each.partition_count for each in machine.directories)
    # A segment holds its log, and the one that takes records both indexes too (decision 65).
    needed = segments + 2 * partitions + connections + OTHER_DESCRIPTORS
    text = (
        f"{machine.descriptors_max} file descriptors at most; {needed} for {partitions} "
        f"partitions with {segments} segments, and {connections} connections"
    )
    if needed <= machine.descriptors_max:
        return Check("ok", "descriptors", text)
    return Check(
        "warn",
        "descriptors",
        f"{text}: clients wait when there are none left",
        f"LimitNOFILE={2 * needed} in the unit, or ulimit -n {2 * needed}; or a lower "
        "max.connections",
    )


def _threads(machine: Machine) -> Iterator[Check]:
    if machine.threads_max is None:
        return
    text = f"{machine.threads_max} threads at most"
    if machine.threads_max >= 2 * WORKERS_MAX:
        yield Check("ok", "threads", text)
    else:
        yield Check(
            "warn",
            "threads",
            f"{text}, of the user or of the control group; a node has up to {WORKERS_MAX} that "
            "wait for disks, and fails where it cannot start one",
            f"TasksMax={4 * WORKERS_MAX} in the unit, --pids-limit of the container, or ulimit -u",
        )


def _memory(machine: Machine, config: BrokerConfig) -> Iterator[Check]:
    limits = [each for each in (machine.memory_bytes, machine.memory_bytes_max) if each is not None]
    if not limits:
        return
    where = "the control group" if min(limits) == machine.memory_bytes_max else "the machine"
    connections = config.connection_limits.connections_max
    large = config.request_memory_bytes_max
    if large == INT64_MAX:
        yield Check(
            "warn",
            "memory",
            f"{where} has {_size(min(limits))}, and requests may take all of it",
            "queued.max.request.bytes=268435456",
        )
        return
    cleaner = config.cleaner.map_bytes_max if config.is_cleaner_enabled else 0
    needed = BASE_BYTES + large + connections * CONNECTION_BYTES + cleaner
    text = (
        f"{where} has {_size(min(limits))}; with these settings the node takes up to "
        f"{_size(needed)}: {connections} connections, {_size(large)} of large requests, "
        f"{_size(cleaner)} for compaction"
    )
    if needed <= min(limits):
        yield Check("ok", "memory", text)
        return
    yield Check(
        "warn",
        "memory",
        f"{text}; the kernel kills a process above the limit",
        "more memory, or lower values of max.connections, queued.max.request.bytes and "
        "log.cleaner.dedupe.buffer.size",
    )


def _cores(machine: Machine) -> Iterator[Check]:
    if machine.cores_max is None:
        return
    text = f"{machine.cores_max:g} cores at most"
    if machine.cores_max >= 1:
        yield Check("ok", "cpu", text)
        return
    yield Check(
        "warn",
        "cpu",
        f"{text}: the kernel stops the whole node for the rest of each 0.1 s in which it has used "
        "that up, and all its clients wait",
        "CPUQuota=100% or more, --cpus=1 of the container, or no limit and a weight instead",
    )


def _swap(machine: Machine) -> Iterator[Check]:
    if machine.swap_bytes is None:
        return
    if not machine.swap_bytes:
        yield Check("ok", "swap", "none")
    elif machine.swappiness is not None and machine.swappiness <= SWAPPINESS_MAX:
        yield Check("ok", "swap", f"vm.swappiness is {machine.swappiness}")
    else:
        yield Check(
            "warn",
            "swap",
            f"{_size(machine.swap_bytes)}, with vm.swappiness={machine.swappiness}: logs fill the "
            "page cache, for which memory of the node is swapped out, and its event loop waits for "
            "the disk when it needs that again",
            "sysctl vm.swappiness=1, or MemorySwapMax=0 in the unit",
        )


def _clock(machine: Machine) -> Iterator[Check]:
    if machine.is_clock_kept is None:
        return
    if machine.is_clock_kept:
        yield Check("ok", "clock", "synchronized")
        return
    yield Check(
        "warn",
        "clock",
        "nothing keeps it right; from an hour on, a clock that is late refuses records, and one "
        "that is ahead deletes them early",
        "timedatectl set-ntp true, or start chronyd; of a virtual machine its host may do it",
    )


def _backlog(machine: Machine) -> Iterator[Check]:
    if machine.backlog_max is None:
        return
    text = f"{machine.backlog_max} connections may wait to be accepted"
    if machine.backlog_max >= BACKLOG:
        yield Check("ok", "backlog", text)
        return
    yield Check(
        "warn",
        "backlog",
        f"{text}, and the node asks for {BACKLOG}: of many clients that connect at once some "
        "wait for a second or more",
        f"sysctl net.core.somaxconn={BACKLOG}",
    )


def _ports(machine: Machine, config: BrokerConfig) -> Iterator[Check]:
    # A node that runs has its directories and its ports.
    runs = any(each.is_in_use for each in machine.directories)
    reserved = _ports_of(machine.reserved_ports)
    low, high = machine.local_ports or (1, 0)
    given = [each for _, each in listened(config) if low <= each <= high and each not in reserved]
    # All at once: the setting is replaced as a whole.
    wanted = ",".join([*filter(None, [machine.reserved_ports]), *map(str, dict.fromkeys(given))])
    for host, port in listened(config):
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reason = machine.refused_ports.get((host, port))
        if reason is not None and not runs:
            yield Check(
                "fail",
                "port",
                f"{address}: {reason}; another process may listen there, or systemd for this node",
                f"ss -ltnp 'sport = :{port}'",
            )
        elif port in given:
            yield Check(
                "warn",
                "port",
                f"{address} is one of those from {low} to {high} that the kernel gives to "
                "connections; one of them may have it when the node starts",
                f"sysctl net.ipv4.ip_local_reserved_ports={wanted}, or another port",
            )
        else:
            yield Check("ok", "port", f"{address} is {'in use by the node' if reason else 'free'}")


def _ports_of(text: str) -> set[int]:
    """The ports of a list such as 8080,9092-9094."""
    found: set[int] = set()
    for each in text.split(","):
        first, _, last = each.strip().partition("-")
        if first.isdecimal():
            found.update(range(int(first), int(last if last.isdecimal() else first) + 1))
    return found


def listened(config: BrokerConfig) -> list[tuple[str, int]]:
    """The addresses that a node listens on, without those that choose a free port."""
    all_listeners = [*config.listeners, config.controller_listener]
    found = [(each.host, each.port) for each in all_listeners if each is not None]
    if config.http_listener is not None:
        found.append(config.http_listener)
    return [each for each in dict.fromkeys(found) if each[1]]


def _directory(directory: Directory, machine: Machine, config: BrokerConfig) -> Iterator[Check]:
    path, mount = directory.path, directory.mount
    if not directory.is_usable:
        above = path if directory.exists else f"a directory above {path}, which is not there yet,"
        yield Check(
            "fail",
            "directory",
            f"{above} belongs to {directory.owner}, and {machine.user} cannot write there",
            f"install -d -o {machine.user} -m 750 {path}; or run this as the user of the node",
        )
        return
    yield Check("ok", "directory", f"{path} {'is there' if directory.exists else 'will be made'}")
    if directory.exists and directory.mode & 0o007:
        yield Check(
            "warn",
            "directory",
            f"{path} is open to every user of the machine (mode {directory.mode:o}), and so are "
            "the records",
            f"chmod o= {path}",
        )
    yield from _room(directory, config)
    if mount is not None:
        yield from _mount(path, mount.kind, mount.options)


def _room(directory: Directory, config: BrokerConfig) -> Iterator[Check]:
    path, free, total = directory.path, directory.free_bytes, directory.total_bytes
    segment = int(config.topic_defaults.configs.get("segment.bytes", 1 << 30))
    text = f"{path} has {_size(free)} of {_size(total)} free"
    if free >= max(2 * segment, total // 20):
        yield Check("ok", "room", text)
    else:
        yield Check(
            "fail" if free < segment // 16 else "warn",
            "room",
            f"{text}; segments of {_size(segment)} are deleted whole, and compaction writes a new "
            "one before it removes the old ones",
            "tailrace broker log-dirs shows what fills it; enlarge it, or lower retention.ms",
        )
    if directory.free_inodes is not None and directory.free_inodes < FREE_INODES_MIN:
        yield Check(
            "warn",
            "inodes",
            f"{path} has {directory.free_inodes} inodes free, and each segment takes three or more",
            "df -i; a file system with more inodes (mkfs -i), or XFS",
        )


def _mount(path: str, kind: str, options: frozenset[str]) -> Iterator[Check]:
    found = list(_mount_faults(kind, options))
    if not found:
        yield Check("ok", "file system", f"{path} is on {kind}")
    for level, text, advice in found:
        yield Check(level, "file system", f"{path} is on {kind}{text}", advice)


def _mount_faults(kind: str, options: frozenset[str]) -> Iterator[tuple[Level, str, str]]:
    if "ro" in options:
        yield "fail", ", mounted read-only", "mount -o remount,rw; dmesg may say why"
    if kind in REMOTE:
        yield (
            "warn",
            (
                ": appends are made on the event loop, so a server that does not answer holds up "
                "all clients, and a lock may not keep another machine from the directory"
            ),
            "a disk or a volume of this machine; replicas on other brokers instead",
        )
    if kind in IN_MEMORY:
        yield "warn", ": the records go with the machine or its restart", "another directory"
    if kind == "overlay":
        yield (
            "warn",
            ", a layer of the container: the records go with it",
            "a volume: -v tailrace:/var/lib/kafka/data",
        )
    if "sync" in options:
        yield (
            "warn",
            ", mounted with sync: each append waits for the device, on the event loop",
            "mount without sync; tailrace.durability=sync has acknowledgements wait instead",
        )
    if options & {"nobarrier", "barrier=0"}:
        yield (
            "warn",
            (
                " without barriers: a flush does not reach the device, and what was acknowledged "
                "with tailrace.durability=sync can be lost with the power"
            ),
            "mount without nobarrier",
        )
    if kind in ("ext3", "ext4", "xfs", "btrfs") and not options & {"relatime", "noatime"}:
        yield (
            "warn",
            " with access times: each read of a log writes an inode",
            "mount with relatime or noatime",
        )


def _shared_volumes(machine: Machine) -> Iterator[Check]:
    volumes: dict[str, list[str]] = {}
    for each in machine.directories:
        if each.mount is not None:
            volumes.setdefault(each.mount.point, []).append(each.path)
    for point, paths in volumes.items():
        if len(paths) > 1:
            yield Check(
                "warn",
                "volumes",
                f"{', '.join(paths)} are on one file system, {point}: they fail together and fill "
                "together",
                "one log directory for each disk",
            )


def _size(count: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"


def secret_files(texts: Mapping[str, str], file: str | None) -> list[str]:
    """The files with secrets that settings name, and `file`, if it has some itself.

    A reference to another place, such as `${file:/run/secrets/a:b}`, names that one; a variable has
    no file.
    """
    found = []
    for name, text in texts.items():
        places = referred_files(text, texts)
        if places is not None:
            found += [place for place in places if place.startswith("/")]
        elif name.endswith("ssl.keystore.location"):
            found.append(text)
        elif is_secret_name(name) and text and file is not None:
            found.append(file)
    return [*dict.fromkeys(found)]
