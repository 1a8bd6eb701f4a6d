import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints every setting that Kafka defines for brokers, topics and groups, one a line.
 *
 * <p>A line has "broker", "topic" or "group", the name, the type, whether it is internal, whether it
 * changes while a broker runs (read-only, per-broker, cluster-wide), and the default, with tabs
 * between.
 */
final class Settings {
    public static void main(String[] arguments) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        print("broker", AbstractKafkaConfig.CONFIG_DEF, modes, "read-only");
        print("topic", LogConfig.configDefCopy(), Map.of(), "-");
        print("group", GroupConfig.CONFIG_DEF, Map.of(), "-");
        for (String name : new TreeMap<>(modes).keySet()) {
            // Rates of copies, which no definition of the broker's has.
            if (!AbstractKafkaConfig.CONFIG_DEF.names().contains(name)) {
                row("dynamic", name, "LONG", "public", modes.get(name), "none");
            }
        }
    }

    private static void print(String owner, ConfigDef all, Map<String, String> modes, String mode) {
        for (ConfigDef.ConfigKey each : new TreeMap<>(all.configKeys()).values()) {
            String value = "none";
            if (each.hasDefault()) {
                String text = ConfigDef.convertToString(each.defaultValue, each.type);
                value = text == null ? "null" : "'" + text + "'";
            }
            String kind = each.internalConfig ? "internal" : "public";
            row(owner, each.name, each.type.name(), kind, modes.getOrDefault(each.name, mode), value);
        }
    }

    private static void row(String... cells) {
        System.out.println(String.join("\t", cells));
    }
}
