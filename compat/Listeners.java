import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import kafka.server.KafkaConfig;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Prints what Kafka makes of the settings of a broker, one a line after "= ": "refuses", or the
 * advertised listeners and the one for brokers. Other lines are warnings of its own.
 *
 * <p>Each line of the file has NAME=VALUE, several with tabs between.
 */
final class Listeners {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            Map<String, String> settings = new HashMap<>();
            for (String each : line.split("\t")) {
                String[] parts = each.split("=", 2);
                settings.put(parts[0], parts[1]);
            }
            System.out.println("= " + answer(settings));
        }
    }

    private static String answer(Map<String, String> settings) {
        try {
            KafkaConfig config = new KafkaConfig(settings, false);
            String advertised =
                    CollectionConverters.asJava(config.effectiveAdvertisedBrokerListeners()).stream()
                            .map(each -> each.listener() + " " + each.host() + " " + each.port())
                            .sorted()
                            .collect(Collectors.joining(","));
            return advertised + " by " + config.interBrokerListenerName().value();
        } catch (RuntimeException error) {
            return "refuses";
        }
    }
}
