"""The mechanisms of a listener, from its settings."""

import asyncio
import threading
from collections.abc import Mapping

from tailrace.runtime.threads import WorkerThreads
from tailrace.security.authenticator import WORK_MAX, LoginThreads
from tailrace.security.exchange import Work
from tailrace.security.listener_logins import LoginServices, listener_logins
from tailrace.security.sasl_config import listener_sasl_config
from tests.unit.security.exchanges import Running

PREFIX = "listener.name.l."
SCRAM: Mapping[str, str] = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    f"{PREFIX}scram-sha-256.sasl.jaas.config": "ScramLoginModule required;",
}


def salt_of_nobody(texts: Mapping[str, str]) -> bytes:
    """The salt that a listener with these settings gives to a user that there is not."""
    faults: list[str] = []
    config = listener_sasl_config(texts, prefix=PREFIX, faults=faults)
    assert faults == []

    async def main() -> bytes:
        threads = WorkerThreads()
        services = LoginServices(
            find_scram=lambda _, __: None,
            usual_iterations=lambda _: 4096,
            threads=LoginThreads(threads),
            now=lambda: 0.0,
        )
        logins = listener_logins("L", config, services)
        threads.close()
        exchange = logins.mechanisms["SCRAM-SHA-256"].exchange(b"n,,n=nobody,r=abc")
        challenge = Running(exchange).take()
        assert isinstance(challenge, bytes)
        return challenge.split(b",s=")[1]

    return asyncio.run(main())


def test_no_salt_tells_of_the_settings() -> None:
    """The salt of a user that there is not lets nobody try passwords of the node against it."""
    password = 'ScramLoginModule required username="node" password="node-secret";'
    settings = {**SCRAM, f"{PREFIX}scram-sha-256.sasl.jaas.config": password}
    assert salt_of_nobody(settings) != salt_of_nobody(settings)


def test_logins_that_hang_hold_up_no_others() -> None:
    """An issuer that hangs takes the threads of its mechanism and listener, and no others."""
    is_over = threading.Event()

    async def main() -> object:
        threads = WorkerThreads()
        logins = LoginThreads(threads)
        hanging = [
            asyncio.ensure_future(
                logins.run(Work(is_over.wait), listener="A", mechanism="OAUTHBEARER")
            )
            for _ in range(2 * WORK_MAX)
        ]
        # It ends with a TimeoutError if it waits for those that hang.
        async with asyncio.timeout(60):
            found = [
                await logins.run(Work(lambda: "done"), listener=listener, mechanism=mechanism)
                for listener, mechanism in (("B", "OAUTHBEARER"), ("A", "GSSAPI"))
            ]
        assert not any(each.done() for each in hanging)
        is_over.set()
        await asyncio.gather(*hanging)
        threads.close()
        return found

    assert asyncio.run(main()) == ["done", "done"]
