import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group with Kafka's own client, as `consuming` has those of other makers: one life.
 *
 * <p>`java Member '{"process": "mixed-java-range-9.1", …}'` with the plan of `life`. Its history has the
 * same form (`tests/histories/history`): Java and Python read the same monotonic clock.
 */
public final class Member {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOPIC = "events";
    private static final int SESSION_TIMEOUTS = 2;

    private final JsonNode plan;
    private final Random chance;
    private final FileChannel history;
    private final CountDownLatch stopping = new CountDownLatch(1);
    private final KafkaConsumer<String, String> consumer;
    /** Behind what was returned since the assignment, by partition. */
    private final Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
    private boolean isDirty;
    private int operations;

    private Member(JsonNode plan) throws IOException {
        this.plan = plan;
        chance = new Random((plan.get("seed").asText() + " " + text("process")).hashCode());
        Path path = Path.of(text("folder"), text("process") + ".history");
        history = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        consumer = new KafkaConsumer<>(settings());
    }

    public static void main(String[] arguments) throws Exception {
        Member member = new Member(JSON.readTree(arguments[0]));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.stopping.countDown();
            try {
                main.join();
            } catch (InterruptedException error) {
                // The process ends anyway.
            }
        }));
        try {
            member.consume();
        } catch (Throwable error) {
            System.out.println(error);
            Runtime.getRuntime().halt(1);
        }
    }

    private Map<String, Object> settings() {
        int timeoutMs = plan.get("timeout_ms").asInt();
        String protocol = text("client").substring("java-".length());
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", text("bootstrap"));
        settings.put("group.id", text("group"));
        settings.put("client.id", text("process"));
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", isCommitted() ? "read_committed" : "read_uncommitted");
        settings.put("max.poll.records", 20);
        settings.put("request.timeout.ms", timeoutMs);
        settings.put("default.api.timeout.ms", 3 * timeoutMs);
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        if (protocol.equals("consumer")) {
            settings.put("group.protocol", "consumer");
            return settings;
        }
        settings.put("session.timeout.ms", SESSION_TIMEOUTS * timeoutMs);
        settings.put("heartbeat.interval.ms", timeoutMs / 4);
        settings.put(
            "partition.assignment.strategy",
            List.of(protocol.equals("range") ? RangeAssignor.class : CooperativeStickyAssignor.class));
        return settings;
    }

    private void consume() throws InterruptedException {
        consumer.subscribe(List.of(TOPIC), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                noteAssignment("added", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                if (wantsToCommit(0.7)) {
                    commit();
                }
                noteAssignment("removed", partitions);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                noteAssignment("removed", partitions);
            }
        });
        while (stopping.getCount() > 0) {
            try {
                polled(consumer.poll(Duration.ofMillis(200)));
            } catch (UnknownMemberIdException error) {
                // With the consumer protocol a poll raises what its OffsetFetch was answered after the
                // member has been dropped from the group; the member joins again by itself.
                continue;
            }
            if (wantsToCommit(0.5)) {
                stopping.await((long) (chance.nextDouble() * 400), TimeUnit.MILLISECONDS);
                commit();
            }
        }
        consumer.close();
    }

    private void polled(ConsumerRecords<String, String> records) {
        if (records.isEmpty()) {
            return;
        }
        ObjectNode poll = begin("Poll").put("is_committed", isCommitted());
        var list = poll.putArray("records");
        for (var each : records) {
            TopicPartition partition = new TopicPartition(each.topic(), each.partition());
            list.addArray().add(partition.toString()).add(each.offset()).add(each.value());
            offsets.put(partition, new OffsetAndMetadata(each.offset() + 1));
        }
        isDirty = true;
        write(poll);
        end("ok");
    }

    private void noteAssignment(String field, Collection<TopicPartition> partitions) {
        ObjectNode assignment = begin("Assign").put("group", text("group"));
        var list = assignment.putArray(field);
        for (TopicPartition each : partitions) {
            list.add(each.toString());
            offsets.remove(each);
        }
        isDirty = !offsets.isEmpty();
        write(assignment);
        end("ok");
    }

    private boolean wantsToCommit(double probability) {
        return isDirty && !offsets.isEmpty() && chance.nextDouble() < probability;
    }

    private void commit() {
        ObjectNode commit = begin("Commit").put("group", text("group"));
        ObjectNode wanted = commit.putObject("offsets");
        offsets.forEach((partition, each) -> wanted.put(partition.toString(), each.offset()));
        isDirty = false;
        write(commit);
        try {
            consumer.commitSync(Map.copyOf(offsets));
            end("ok");
        } catch (KafkaException error) {
            isDirty = true;
            end("info");
        }
    }

    private ObjectNode begin(String action) {
        operations++;
        return line().put("do", action);
    }

    /** Write the outcome of the operation that began last; they do not overlap. */
    private void end(String outcome) {
        write(line().put("outcome", outcome));
    }

    private ObjectNode line() {
        return JSON.createObjectNode().put("number", operations).put("at_s", System.nanoTime() / 1e9);
    }

    private void write(ObjectNode line) {
        try {
            // One call: what a killed process has written is whole.
            history.write(ByteBuffer.wrap((line + "\n").getBytes(StandardCharsets.UTF_8)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private boolean isCommitted() {
        return plan.get("is_committed").asBoolean();
    }

    private String text(String name) {
        return plan.get(name).asText();
    }
}
