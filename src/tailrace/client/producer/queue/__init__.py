"""Queue: the batches of each partition, and their memory."""
