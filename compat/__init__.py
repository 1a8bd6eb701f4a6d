"""Proof against Apache Kafka itself: its broker and tools open what Tailrace writes, and reverse.

Not shipped, and nothing of the product needs it. It wants Java 17 and Maven, and fetches Kafka by
name through Maven's own settings.
"""
