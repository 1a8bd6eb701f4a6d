"""The subject that the schema of a key or value is registered under."""

from tailrace.schemas.config import SubjectStrategy
from tailrace.schemas.errors import SchemaError


def subject_of(
    strategy: SubjectStrategy, *, topic: str | None, record_name: str, is_key: bool
) -> str:
    """The subject by a strategy, as Confluent's serializers name it.

    Raises:
        SchemaError: the strategy needs a topic, or a record that has a name.
    """
    if strategy is not SubjectStrategy.RECORD and topic is None:
        raise SchemaError(
            "the subject follows from the topic, which is not known here; give the serializer its "
            "topic, or set the strategy to RecordNameStrategy"
        )
    if strategy is SubjectStrategy.TOPIC:
        return f"{topic}-{'key' if is_key else 'value'}"
    if not record_name:
        raise SchemaError(
            f"{strategy.value} needs a schema with a name: a record of Avro, a message, or a JSON "
            "Schema with a title"
        )
    # A record of Avro brings its namespace, and a message its package, so that two teams' Order
    # differ.
    return record_name if strategy is SubjectStrategy.RECORD else f"{topic}-{record_name}"
