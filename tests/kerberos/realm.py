"""A realm of MIT Kerberos on this machine, with a KDC of its own.

It needs the programs of a KDC (Debian: krb5-kdc, krb5-admin-server, krb5-user).
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path

from tests.wire.clients import TIMEOUT_S

SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
KDC = shutil.which("krb5kdc", path=SBIN)
"""The program, None where it is not installed."""

REALM = "EXAMPLE.COM"
USER = f"alice@{REALM}"
ADMIN = f"bob/admin@{REALM}"
SERVICE = f"kafka/localhost@{REALM}"
SERVICE_BY_ADDRESS = f"kafka/127.0.0.1@{REALM}"
"""The same for clients that know a broker by its address; in the same keytab."""
OTHER_SERVICE = f"other/127.0.0.1@{REALM}"
"""A service that the KDC knows, and the keytab of kafka does not."""


class Realm:
    """A realm with users and services, on a port of 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.service_keytab = directory / "kafka.keytab"
        self.user_keytab = directory / "alice.keytab"
        self.admin_keytab = directory / "bob.keytab"
        self.config = directory / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
            f" dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            # Clocks of one machine: a ticket counts for no longer than it says.
            f" clockskew = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        kdc_config = directory / "kdc.conf"
        kdc_config.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n"
            f"  key_stash_file = {directory}/stash\n }}\n"
            f"[logging]\n kdc = FILE:{directory}/kdc.log\n"
        )
        self.environment = {
            "PATH": SBIN,
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(kdc_config),
            "KRB5CCNAME": f"FILE:{directory}/cache",
            "KRB5_KTNAME": str(self.service_keytab),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Create the database and its principals, and serve."""
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        for principal, keytab in (
            (USER, self.user_keytab),
            (ADMIN, self.admin_keytab),
            (SERVICE, self.service_keytab),
            (SERVICE_BY_ADDRESS, self.service_keytab),
            (OTHER_SERVICE, self.directory / "other.keytab"),
            (f"other/localhost@{REALM}", self.directory / "other.keytab"),
        ):
            self.run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(keytab), principal)
        assert KDC is not None, "there is no krb5kdc: install Debian's krb5-kdc"
        self._process = subprocess.Popen(
            [KDC, "-n", "-r", REALM], env=self.environment, stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        assert b"starting" in self._process.stderr.readline()

    def stop(self) -> None:
        """End the KDC."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=TIMEOUT_S)

    def run(self, *command: str, given: bytes = b"") -> str:
        """Run a program with this realm, which gets `given`; returns its output."""
        done = subprocess.run(
            command, env=self.environment, check=True, timeout=TIMEOUT_S, input=given,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout.decode()
