"""Delivery: requests with batches, and what becomes of each batch."""
