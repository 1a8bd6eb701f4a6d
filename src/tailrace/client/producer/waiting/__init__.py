"""Waiting: threads and tasks that run a producer, or wait for it."""
