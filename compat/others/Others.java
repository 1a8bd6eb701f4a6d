// Kafka's own client at work: `java Others.java PROTOCOL COMMAND BOOTSTRAP ... NAME=VALUE ...`, where
// PROTOCOL is that of the group, `classic` or `consumer`; compat/others.py says what each command
// does. Settings go to the client as they are.

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Others {
    static final Duration IDLE = Duration.ofSeconds(3);
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static final String TOKEN_URL = "sasl.oauthbearer.token.endpoint.url";

    static final Map<String, Object> given = new HashMap<>();
    static String protocol;
    static String bootstrap;

    public static void main(String[] all) {
        // Its log has the same errors, with less of their causes.
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        try {
            run(all);
        } catch (Exception error) {
            var line = new StringBuilder();
            for (Throwable each = error; each != null; each = each.getCause()) {
                if (!(each instanceof ExecutionException)) {
                    line.append(each).append("; ");
                }
            }
            System.err.println(line);
            System.exit(1);
        }
    }

    static void run(String[] all) throws Exception {
        for (String each : all) {
            if (each.contains("=")) {
                String[] parts = each.split("=", 2);
                given.put(parts[0], parts[1]);
            }
        }
        String[] arguments =
            Arrays.stream(all).filter(each -> !each.contains("=")).toArray(String[]::new);
        // Kafka reads tokens only from addresses that the process allows, and Java does not look at
        // the variable of the realm's file.
        set("org.apache.kafka.sasl.oauthbearer.allowed.urls", given.get(TOKEN_URL));
        set("java.security.krb5.conf", System.getenv("KRB5_CONFIG"));
        protocol = arguments[0];
        bootstrap = arguments[2];
        switch (arguments[1]) {
            case "produce" -> produce(arguments[3], Integer.parseInt(arguments[4]));
            case "consume" -> consume(arguments[3], arguments[4], Integer.parseInt(arguments[5]));
            case "exchange" -> {
                produce(arguments[3], Integer.parseInt(arguments[5]));
                consume(arguments[3], arguments[4], (int) PATIENCE.toSeconds());
            }
            case "trickle" -> trickle(arguments[3], Integer.parseInt(arguments[4]));
            case "transform" -> transform(arguments[3], arguments[4], arguments[5]);
            case "transact" -> transact(arguments[3], Integer.parseInt(arguments[4]));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    static void produce(String topic, int count) throws Exception {
        try (var producer = producer(Map.of())) {
            java.util.concurrent.Future<?> last = null;
            for (int number = 0; number < count; number++) {
                String key = "key " + number % 10;
                last = producer.send(new ProducerRecord<>(topic, key, String.valueOf(number)));
            }
            producer.flush();
            last.get();
        }
    }

    static void trickle(String topic, int count) throws Exception {
        try (var producer = producer(Map.of())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(number))).get();
                Thread.sleep(100);
            }
            for (var each : producer.metrics().entrySet()) {
                if (each.getKey().name().equals("successful-reauthentication-total")) {
                    System.out.println("logged in again " + each.getValue().metricValue());
                }
            }
        }
    }

    static void consume(String topic, String group, int seconds) {
        try (var consumer = consumer(group)) {
            consumer.subscribe(List.of(topic));
            var found = consumer.poll(Duration.ofSeconds(seconds));
            for (; !found.isEmpty(); found = consumer.poll(IDLE)) {
                for (ConsumerRecord<String, String> each : found) {
                    System.out.println(each.partition() + " " + each.offset() + " " + each.value());
                }
                consumer.commitSync();
            }
        }
    }

    static void transform(String from, String to, String group) {
        try (var consumer = consumer(group); var producer = producer(Map.of("transactional.id", group))) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            int turn = 0;
            for (var found = consumer.poll(PATIENCE); !found.isEmpty(); found = consumer.poll(IDLE)) {
                // What is aborted is done again at once, in a second transaction.
                do {
                    turn++;
                    producer.beginTransaction();
                    for (ConsumerRecord<String, String> each : found) {
                        producer.send(new ProducerRecord<>(to, each.key(), "t" + each.value()));
                    }
                    producer.sendOffsetsToTransaction(ends(found), consumer.groupMetadata());
                    if (turn % 3 != 1) {
                        producer.commitTransaction();
                    } else {
                        producer.abortTransaction();
                    }
                } while (turn % 3 == 1);
            }
        }
    }

    static void transact(String topic, int count) throws Exception {
        var settings = Map.<String, Object>of("transactional.id", topic, "retry.backoff.ms", 5);
        try (var producer = producer(settings)) {
            producer.initTransactions();
            for (int number = 0; number < count; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "c" + number)).get();
                producer.commitTransaction();
                producer.beginTransaction();
                var sent = producer.send(new ProducerRecord<>(topic, "a" + number));
                producer.abortTransaction();
                if (!sent.isDone()) {
                    System.out.println("leaked a" + number);
                }
            }
        }
    }

    static Map<TopicPartition, OffsetAndMetadata> ends(ConsumerRecords<String, String> found) {
        var ends = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (TopicPartition each : found.partitions()) {
            var records = found.records(each);
            ends.put(each, new OffsetAndMetadata(records.get(records.size() - 1).offset() + 1));
        }
        return ends;
    }

    static KafkaConsumer<String, String> consumer(String group) {
        var settings = new HashMap<String, Object>(given);
        settings.putAll(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "group.protocol", protocol,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed",
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class));
        return new KafkaConsumer<>(settings);
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        var settings = new HashMap<String, Object>(given);
        settings.putAll(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        return new KafkaProducer<>(settings);
    }

    static void set(String property, Object value) {
        if (value != null) {
            System.setProperty(property, value.toString());
        }
    }
}
