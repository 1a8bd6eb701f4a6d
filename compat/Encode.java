import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Prints the bytes that Kafka's own classes write for messages given as JSON, in hex, one a line.
 *
 * <p>Each line of the file has the name of a message, its version, and its fields, with tabs between.
 */
final class Encode {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.transaction.generated"
    );

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", 3);
            short version = Short.parseShort(parts[1]);
            Message message = (Message) converterOf(parts[0])
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, json.readTree(parts[2]), version);
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] written = new byte[buffer.remaining()];
            buffer.get(written);
            System.out.println(HexFormat.of().formatHex(written));
        }
    }

    private static Class<?> converterOf(String name) throws ClassNotFoundException {
        for (String each : PACKAGES) {
            // Requests and responses have Data behind their names, records do not.
            for (String data : List.of("Data", "")) {
                try {
                    return Class.forName(each + "." + name + data + "JsonConverter");
                } catch (ClassNotFoundException error) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}
