import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints whether Kafka takes a value of a setting: takes, refuses or unknown, one a line.
 *
 * <p>Each line of the file has "topic" or "broker", a name and a value, with tabs between.
 */
final class Limits {
    public static void main(String[] arguments) throws Exception {
        ConfigDef topic = LogConfig.configDefCopy();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", 3);
            ConfigDef declared = parts[0].equals("topic") ? topic : AbstractKafkaConfig.CONFIG_DEF;
            System.out.println(answer(declared.configKeys().get(parts[1]), parts[1], parts[2]));
        }
    }

    private static String answer(ConfigDef.ConfigKey key, String name, String text) {
        if (key == null) return "unknown";
        try {
            Object value = ConfigDef.parseType(name, text, key.type);
            if (key.validator != null) key.validator.ensureValid(name, value);
            return "takes";
        } catch (ConfigException error) {
            return "refuses";
        }
    }
}
