"""The page that the tables make."""

from tailrace.protocol.apis import APIS, ApiKey
from tests.protocol_reference import describe


def test_the_page_has_every_served_api() -> None:
    """Each API stands in the table with its key, its versions and its first flexible one."""
    page = describe()
    assert "| Fetch | 1 | 4 to 18 | 12 |" in page
    for api in APIS.values():
        assert f"\n## {api.key.title}\n" in page


def test_the_page_has_fields_with_their_versions() -> None:
    """A field has its type, its versions among the served ones, its nulls and its tag."""
    page = describe()
    assert "| &nbsp;&nbsp;`topic_id` | uuid | 13 |  |  |" in page
    assert "| `cluster_id` | string | 12 to 18 | 12 | 0 |" in page
    assert "| `node_endpoints` | array of NodeEndpoint | 10 to 13 |  | 0 |" in page


def test_titles_are_the_names_in_kafkas_documents() -> None:
    """A key's title is its name without underscores."""
    assert ApiKey.LIST_OFFSETS.title == "ListOffsets"
    assert ApiKey.ADD_PARTITIONS_TO_TXN.title == "AddPartitionsToTxn"
