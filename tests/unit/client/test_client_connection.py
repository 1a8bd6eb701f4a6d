"""The pure parts of a client: versions, addresses, attempts, and codes that become errors."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.config import BrokerAddress, parse_bootstrap
from tailrace.client.errors import RemoteFatalError, RemoteRetriableError, raise_for
from tailrace.client.nodes import Backoff
from tailrace.client.nodes.versions import VERSION_LIMITS, choose_version
from tailrace.client.retries import ATTEMPTS_MAX, retry
from tailrace.errors import ConfigError, FatalError, RetriableError
from tailrace.protocol.apis import APIS, Api
from tailrace.protocol.errors import ErrorCode

VERSIONS = st.integers(0, 40)
CONSTANT = Backoff(100, 100, Random(0))


@given(st.sampled_from(list(APIS.values())), VERSIONS, VERSIONS)
def test_a_chosen_version_is_the_highest_that_both_take(api: Api, first: int, last: int) -> None:
    """The chosen version is the highest common one, also where support ended earlier."""
    limit = VERSION_LIMITS.get(api.key, 99)
    shared = [v for v in api.versions if first <= v <= last and v <= limit]
    assert choose_version(api, first=first, last=last) == (shared[-1] if shared else None)


def test_a_bootstrap_list_is_read_in_order() -> None:
    """Names, numbers and bracketed IPv6 addresses stand where they stood."""
    text = "one:9092, 10.0.0.2:1,,[::1]:65535"
    assert [str(each) for each in parse_bootstrap(text)] == [
        "one:9092",
        "10.0.0.2:1",
        "[::1]:65535",
    ]
    assert parse_bootstrap("[::1]:7") == (BrokerAddress("::1", 7),)


@pytest.mark.parametrize("text", ["", ",", "one", "one:", ":9092", "one:0", "one:65536", "a:²"])
def test_a_bad_bootstrap_list_is_refused(text: str) -> None:
    """No address, no host, no port, or a port that does not exist."""
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        parse_bootstrap(text)


def test_all_faults_of_a_bootstrap_list_come_together() -> None:
    """Two bad addresses give two sentences."""
    with pytest.raises(ConfigError) as caught:
        parse_bootstrap("one,two:9092,three:x")
    assert len(caught.value.faults) == 2


def test_codes_become_errors_by_who_must_act() -> None:
    """0 passes, retriable codes give a retriable error, all others a fatal one."""
    raise_for(0, about="all")
    for code in ErrorCode:
        if code is not ErrorCode.NONE:
            expected = RemoteRetriableError if code.is_retriable else RemoteFatalError
            with pytest.raises(expected, match=rf"this: .*{code.name}"):
                raise_for(code, about="this")
    with pytest.raises(RemoteFatalError, match="error 4711"):
        raise_for(4711, about="this")


def test_a_failure_that_may_pass_is_tried_again_with_growing_pauses() -> None:
    """The client pauses, recovers and tries again until it works."""
    events: list[object] = []

    def attempt() -> str:
        events.append("try")
        if events.count("try") < 4:
            raise RetriableError
        return "done"

    done = retry(
        attempt,
        recover=lambda: events.append("recover"),
        pause=events.append,
        pauses=Backoff(100, 1000, Random(0)),
    )
    assert done == "done"
    pauses = [each for each in events if isinstance(each, float)]
    assert [each for each in events if each not in pauses] == [*["try", "recover"] * 3, "try"]
    assert pauses == [pytest.approx(each, rel=0.2) for each in (0.1, 0.2, 0.4)]


def test_after_the_last_attempt_the_error_is_raised() -> None:
    """The error of the last attempt is raised unchanged."""
    pauses: list[float] = []

    def attempt() -> None:
        raise RetriableError(len(pauses))

    with pytest.raises(RetriableError) as caught:
        retry(attempt, recover=lambda: None, pause=pauses.append, pauses=CONSTANT)
    assert caught.value.args == (ATTEMPTS_MAX - 1,)
    assert len(pauses) == ATTEMPTS_MAX - 1


def test_a_failure_that_will_not_pass_is_not_tried_again() -> None:
    """There is no pause and no second attempt."""
    pauses: list[float] = []

    def attempt() -> None:
        raise FatalError

    with pytest.raises(FatalError):
        retry(attempt, recover=lambda: None, pause=pauses.append, pauses=CONSTANT)
    assert not pauses
