"""Every operation under answers of every shape: an outcome for each item, or one clear error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.client.admin import Outcomes
from tailrace.client.calls import Ask
from tailrace.client.errors import UnreachableBrokerError
from tailrace.errors import TailraceError
from tailrace.protocol.apis import api_of
from tests.examples import examples
from tests.unit.client.admin.calls import ARGUMENTS, ROUTING, items_of, operations, outcome_of
from tests.unit.protocol.strategies import messages


def test_every_operation_is_looked_at() -> None:
    """A new operation needs arguments here."""
    assert set(operations()) == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_any_answer_ends_in_an_outcome(name: str) -> None:
    """Whatever well-formed answers come, the call ends in time, with an outcome for each item."""

    @settings(max_examples=examples(40), deadline=None, derandomize=True, database=None)
    @given(data=st.data(), is_routed=st.booleans())
    def holds(data: st.DataObject, *, is_routed: bool) -> None:
        def answer(ask: Ask) -> object:
            api = api_of(type(ask.body))
            if is_routed and api.key in ROUTING:
                return ROUTING[api.key]
            version = data.draw(st.sampled_from(list(api.versions)))
            return data.draw(messages(api.response, version))

        found, seconds = outcome_of(name, answer)
        assert seconds < 15
        if isinstance(found, Outcomes):
            assert items_of(name) in (None, set(found))

    holds()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_cluster_that_is_gone_ends_a_call_in_time(name: str) -> None:
    """Each operation has errors, and no result, if no request gets an answer."""
    gone = UnreachableBrokerError("b:9092 is gone", address="b:9092")
    found, seconds = outcome_of(name, lambda ask: ROUTING.get(api_of(type(ask.body)).key, gone))
    assert seconds < 15
    if isinstance(found, Outcomes):
        assert set(found.errors) == set(found)
        assert items_of(name) in (None, set(found))
    else:
        assert isinstance(found, TailraceError)
