from tailrace.client.producer.queue.open_batches cimport OpenBatches

cdef class SendCall:
    cdef OpenBatches _batches
