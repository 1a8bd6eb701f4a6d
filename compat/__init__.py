"""Checks against Apache Kafka itself: each side opens directories that the other has written.

Not shipped, and the product does not need it. It needs JDK 17 and Maven, and fetches Kafka by name
with Maven's own settings.
"""
