import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Prints for each line of a file whether Kafka starts beside a folder of that name: true or false. */
final class Folders {
    public static void main(String[] arguments) throws Exception {
        for (String name : Files.readAllLines(Path.of(arguments[0]))) {
            boolean starts = true;
            try {
                UnifiedLog.parseTopicPartitionName(new File("/", name));
            } catch (KafkaException error) {
                starts = false;
            }
            System.out.println(starts);
        }
    }
}
