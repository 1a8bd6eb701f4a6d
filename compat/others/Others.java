// Kafka's own client at work: `java Others.java PROTOCOL COMMAND BOOTSTRAP ...`, where PROTOCOL is
// that of the group, `classic` or `consumer`; compat/others.py says what each command does.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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

    static String protocol;
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        protocol = arguments[0];
        bootstrap = arguments[2];
        switch (arguments[1]) {
            case "produce" -> produce(arguments[3], Integer.parseInt(arguments[4]));
            case "consume" -> consume(arguments[3], arguments[4], Integer.parseInt(arguments[5]));
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
        return new KafkaConsumer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "group.protocol", protocol,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", "read_committed",
            "key.deserializer", StringDeserializer.class,
            "value.deserializer", StringDeserializer.class));
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        var settings = new HashMap<String, Object>(more);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        return new KafkaProducer<>(settings);
    }
}
