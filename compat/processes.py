"""Programs that this harness starts, and their ends.

Invariant: no process outlives the one that started it. On any error it is killed; the kernel kills
it if we are killed ourselves.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tailrace.errors import FatalError

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
TAKEN = "Address already in use"


class Server:
    """A program that runs until it is stopped."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        output: Path,
        *,
        ready: str,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start it with more variables of the environment; return when it has printed `ready`.

        Raises:
            FatalError: it ended or was not ready in time; the message has its last words.
        """
        self._name = name
        self._output = output
        with output.open("wb") as printed:
            self._process = subprocess.Popen(  # noqa: S603 - the Java that was found
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                # A session of its own: Ctrl-C reaches us only, and we stop the program.
                start_new_session=True,
            )
        try:
            self._wait_until_printed(ready)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def stop(self) -> None:
        """Stop in order.

        Raises:
            FatalError: it did not; it is killed.
        """
        try:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise FatalError(f"{self._name} has not stopped in {STOP_SECONDS_MAX} s") from error
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait()

    def printed(self) -> list[str]:
        """The lines that it has printed so far."""
        return self._output.read_text(errors="replace").splitlines()

    def _wait_until_printed(self, ready: str) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not any(ready in line for line in self.printed()):
            if self._process.poll() is not None:
                raise FatalError(f"{self._name} ended as it started; {self._last_words()}")
            if time.monotonic() > deadline:
                raise FatalError(
                    f"{self._name} was not ready in {START_SECONDS_MAX} s; {self._last_words()}"
                )
            time.sleep(0.05)

    def _last_words(self) -> str:
        """The line that says most, and what to do about it where that is known."""
        printed = self.printed()
        taken = [line for line in printed if TAKEN in line]
        if taken:
            return f"another program has taken its port: free it and try again ({taken[0][:300]})"
        return _said(printed)


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command, made to die with this process, where the machine supports that."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


def run(command: Sequence[str], *, name: str, seconds_max: float) -> str:
    """Run a program and return its output, with standard error last.

    Raises:
        FatalError: it failed, with the line that says most; or it takes too long.
    """
    try:
        answer = subprocess.run(  # noqa: S603 - the Java or Maven that was found, without a shell
            command, capture_output=True, text=True, check=False, timeout=seconds_max
        )
    except subprocess.TimeoutExpired as error:
        raise FatalError(f"{name} has not ended in {seconds_max:.0f} s; try again") from error
    told = answer.stdout + answer.stderr
    if answer.returncode:
        raise FatalError(f"{name} failed; {_said(told.splitlines())}")
    return told


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _said(printed: Sequence[str]) -> str:
    errors = [line for line in printed if "ERROR" in line or "xception" in line]
    return f"it said: {(errors or printed[-1:] or ['nothing'])[0][:500]}"
