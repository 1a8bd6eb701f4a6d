import java.io.DataInputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Reads batches as Kafka's consumer reads what it has fetched, and prints a line for each.
 *
 * <p>In the file each batch has its size before it. A line has the number of records and the SHA-256
 * of their values, or the error.
 */
final class Framing {
    public static void main(String[] arguments) throws Exception {
        try (DataInputStream input = new DataInputStream(Files.newInputStream(Path.of(arguments[0])))) {
            while (input.available() > 0) {
                byte[] batch = new byte[input.readInt()];
                input.readFully(batch);
                System.out.println(read(ByteBuffer.wrap(batch)));
            }
        }
    }

    private static String read(ByteBuffer bytes) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        int count = 0;
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                batch.ensureValid();
                try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.create())) {
                    while (records.hasNext()) {
                        ByteBuffer value = records.next().value();
                        digest.update(value);
                        count++;
                    }
                }
            }
        } catch (RuntimeException | Error error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "error " + cause.toString().replace('\n', ' ');
        }
        return count + " " + HexFormat.of().formatHex(digest.digest());
    }
}
