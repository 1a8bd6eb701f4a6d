"""Queue: the batches of each partition, their memory, and the choice of a partition."""
