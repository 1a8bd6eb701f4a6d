package org.apache.kafka.controller;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Random;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.AllocateProducerIdsRequestData;
import org.apache.kafka.common.message.AllocateProducerIdsResponseData;
import org.apache.kafka.common.message.AlterClientQuotasRequestData;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AlterUserScramCredentialsRequestData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatResponseData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.BrokerRegistrationResponseData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.ListPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.UnregisterBrokerRequestData;
import org.apache.kafka.common.message.UnregisterBrokerResponseData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.RemoveUserScramCredentialRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnregisterBrokerRecord;
import org.apache.kafka.common.metadata.UserScramCredentialRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.requests.AlterClientQuotasRequest;
import org.apache.kafka.common.requests.AlterClientQuotasResponse;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Does what the lines of a file say with the classes of Kafka's controller, and prints a line for each.
 *
 * <pre>
 * change    a partition and what is wanted of it      the record of PartitionChangeBuilder
 * place     brokers, counts and a number              the replicas of StripedReplicaPlacer
 * begin     controller's id, session                  a new controller
 * time      milliseconds                              the clock
 * replay    records                                   replayed
 * fence, balance, unclean                             records of the periodic tasks
 * request   key, version, bytes                       answer or error, and records, which are replayed
 * </pre>
 *
 * <p>It is in this package because the methods of the controller's parts are visible in it only.
 */
final class Control {
    private static final int UNTIL_NO_MORE = 1000;

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        Cluster cluster = null;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", -1);
            switch (parts[0]) {
                case "change" -> out.append(change(parts));
                case "place" -> out.append(place(parts));
                case "begin" -> cluster = new Cluster(parts[1], Integer.parseInt(parts[2]));
                default -> out.append(cluster.act(parts));
            }
            out.append('\n');
        }
        Files.writeString(Path.of(arguments[1]), out);
    }

    // -- single changes -----------------------------------------------------------------------

    /** One change: record, alive, level, has ELR, min ISR, election, ISR, replicas, adding, removing, unclean. */
    private static String change(String[] parts) {
        PartitionRecord record = (PartitionRecord) read(parts[1]).message();
        PartitionRegistration partition = new PartitionRegistration(record);
        List<Integer> alive = numbers(parts[2]);
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition,
            record.topicId(),
            record.partitionId(),
            alive::contains,
            MetadataVersion.fromFeatureLevel(Short.parseShort(parts[3])),
            Integer.parseInt(parts[5]),
            Boolean.parseBoolean(parts[4]));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(parts[6]));
        builder.setDefaultDirProvider(each -> new Uuid(1, each));
        if (!parts[7].isEmpty()) builder.setTargetIsr(numbers(parts[7]));
        if (!parts[8].isEmpty()) builder.setTargetReplicas(numbers(parts[8]));
        if (!parts[9].isEmpty()) builder.setTargetAdding(numbers(parts[9]));
        if (!parts[10].isEmpty()) builder.setTargetRemoving(numbers(parts[10]));
        if (!parts[11].isEmpty()) builder.setUncleanShutdownReplicas(numbers(parts[11]));
        return builder.build().map(Control::hex).orElse("");
    }

    /** Numbers with commas between; a dash is an empty list. */
    private static List<Integer> numbers(String text) {
        if (text.isEmpty() || text.equals("-")) return new ArrayList<>();
        return new ArrayList<>(Arrays.stream(text.split(",")).map(Integer::valueOf).toList());
    }

    /** A generator that gives the same for the same limit: it does not matter who asks first. */
    private static final class Fixed extends Random {
        private final int number;

        Fixed(int number) {
            this.number = number;
        }

        @Override
        public int nextInt(int limit) {
            return number % limit;
        }
    }

    private static String place(String[] parts) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (String each : parts[1].split(",")) {
            String[] fields = each.split(":", -1);
            Optional<String> rack = fields[1].isEmpty() ? Optional.empty() : Optional.of(fields[1]);
            brokers.add(new UsableBroker(Integer.parseInt(fields[0]), rack, fields[2].equals("1")));
        }
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public java.util.Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int brokerId) {
                return Uuid.ZERO_UUID;
            }
        };
        PlacementSpec wanted =
            new PlacementSpec(0, Integer.parseInt(parts[2]), Short.parseShort(parts[3]));
        try {
            List<String> placed = new ArrayList<>();
            new StripedReplicaPlacer(new Fixed(Integer.parseInt(parts[4])))
                .place(wanted, cluster)
                .assignments()
                .forEach(each -> placed.add(each.replicas().toString()));
            return String.join(";", placed);
        } catch (RuntimeException error) {
            return error.getMessage();
        }
    }

    // -- a controller -------------------------------------------------------------------------

    private static final class Clock implements Time {
        private long ms = 0;

        @Override
        public long milliseconds() {
            return ms;
        }

        @Override
        public long nanoseconds() {
            return ms * 1_000_000;
        }

        @Override
        public void sleep(long passed) {
            ms += passed;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    private static final class Cluster {
        private final Clock clock = new Clock();
        private final FeatureControlManager features;
        private final ClusterControlManager brokers;
        private final ReplicationControlManager partitions;
        private final ConfigurationControlManager configs;
        private final ProducerIdControlManager producerIds;
        private final ClientQuotaControlManager quotas;
        private final ScramControlManager credentials;
        private long nextOffset = 0;

        Cluster(String clusterId, int sessionMs) {
            SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
            features = new FeatureControlManager.Builder()
                .setSnapshotRegistry(registry)
                .setQuorumFeatures(new QuorumFeatures(
                    100, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(100)))
                .build();
            configs = new ConfigurationControlManager.Builder()
                .setSnapshotRegistry(registry)
                .setNodeId(100)
                .setFeatureControl(features)
                .setKafkaConfigSchema(new KafkaConfigSchema(
                    Map.of(
                        ConfigResource.Type.TOPIC, LogConfig.configDefCopy(),
                        ConfigResource.Type.BROKER, new ConfigDef(AbstractKafkaConfig.CONFIG_DEF)),
                    ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS))
                .build();
            brokers = new ClusterControlManager.Builder()
                .setSnapshotRegistry(registry)
                .setTime(clock)
                .setClusterId(clusterId)
                .setSessionTimeoutNs(sessionMs * 1_000_000L)
                .setFeatureControlManager(features)
                .setBrokerShutdownHandler(this::shutDown)
                .build();
            partitions = new ReplicationControlManager.Builder()
                .setSnapshotRegistry(registry)
                .setConfigurationControl(configs)
                .setClusterControl(brokers)
                .setFeatureControl(features)
                .build();
            producerIds = new ProducerIdControlManager.Builder()
                .setSnapshotRegistry(registry)
                .setClusterControlManager(brokers)
                .build();
            quotas = new ClientQuotaControlManager.Builder().setSnapshotRegistry(registry).build();
            credentials = new ScramControlManager.Builder().setSnapshotRegistry(registry).build();
            brokers.activate();
        }

        private void shutDown(int brokerId, boolean isClean, List<ApiMessageAndVersion> records) {
            partitions.handleBrokerShutdown(brokerId, isClean, records);
        }

        String act(String[] parts) {
            switch (parts[0]) {
                case "time":
                    clock.ms = Long.parseLong(parts[1]);
                    return "";
                case "replay":
                    for (int each = 1; each < parts.length; each++) replay(read(parts[each]));
                    return "";
                case "fence":
                    return periodic(partitions::maybeFenceOneStaleBroker);
                case "balance":
                    return taken(partitions.maybeBalancePartitionLeaders().records());
                case "unclean":
                    return taken(partitions.maybeElectUncleanLeaders().records());
                default:
                    return answer(
                        Integer.parseInt(parts[1]), Short.parseShort(parts[2]), parts[3]);
            }
        }

        private String periodic(Supplier<ControllerResult<Boolean>> task) {
            List<String> out = new ArrayList<>();
            for (int each = 0; each < UNTIL_NO_MORE; each++) {
                ControllerResult<Boolean> result = task.get();
                if (!result.response()) break;
                out.add(taken(result.records()));
            }
            return String.join(" ", out).trim();
        }

        private String answer(int key, short version, String bytes) {
            Readable in = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(bytes)));
            ControllerResult<? extends ApiMessage> result;
            try {
                result = decide(key, version, in);
            } catch (RuntimeException error) {
                return "error " + Errors.forException(error).code() + "\t";
            }
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(result.response(), version).buffer();
            byte[] written = new byte[buffer.remaining()];
            buffer.get(written);
            return HexFormat.of().formatHex(written) + "\t" + taken(result.records());
        }

        private ControllerResult<? extends ApiMessage> decide(int key, short version, Readable in) {
            ControllerRequestContext context = new ControllerRequestContext(
                new RequestHeaderData().setRequestApiKey((short) key).setRequestApiVersion(version),
                KafkaPrincipal.ANONYMOUS,
                OptionalLong.empty());
            switch (key) {
                case 62:
                    return register(new BrokerRegistrationRequestData(in, version), version);
                case 63:
                    return beat(new BrokerHeartbeatRequestData(in, version));
                case 64: {
                    var request = new UnregisterBrokerRequestData(in, version);
                    return ControllerResult.of(
                        partitions.unregisterBroker(request.brokerId()).records(),
                        new UnregisterBrokerResponseData().setErrorMessage(null));
                }
                case 67: {
                    var request = new AllocateProducerIdsRequestData(in, version);
                    var result = producerIds.generateNextProducerId(
                        request.brokerId(), request.brokerEpoch());
                    return ControllerResult.of(
                        result.records(),
                        new AllocateProducerIdsResponseData()
                            .setProducerIdStart(result.response().firstProducerId())
                            .setProducerIdLen(result.response().size()));
                }
                case 56:
                    return partitions.alterPartition(
                        context, new AlterPartitionRequestData(in, version));
                case 73:
                    return partitions.handleAssignReplicasToDirs(
                        new AssignReplicasToDirsRequestData(in, version));
                case 43:
                    return partitions.electLeaders(new ElectLeadersRequestData(in, version));
                case 45:
                    return partitions.alterPartitionReassignments(
                        new AlterPartitionReassignmentsRequestData(in, version));
                case 46: {
                    var request = new ListPartitionReassignmentsRequestData(in, version);
                    return ControllerResult.of(
                        List.of(),
                        partitions.listPartitionReassignments(request.topics(), Long.MAX_VALUE));
                }
                case 49: {
                    var request = new AlterClientQuotasRequest(
                        new AlterClientQuotasRequestData(in, version), version);
                    var result = quotas.alterClientQuotas(request.entries());
                    return ControllerResult.of(
                        request.validateOnly() ? List.of() : result.records(),
                        AlterClientQuotasResponse.fromQuotaEntities(result.response(), 0).data());
                }
                case 51:
                    return credentials.alterCredentials(
                        new AlterUserScramCredentialsRequestData(in, version),
                        features.metadataVersionOrThrow());
                default:
                    throw new IllegalArgumentException("key " + key);
            }
        }

        private ControllerResult<BrokerRegistrationResponseData> register(
                BrokerRegistrationRequestData request, short version) {
            Map<String, Short> levels =
                new HashMap<>(features.finalizedFeatures(Long.MAX_VALUE).featureMap());
            levels.put("kraft.version", (short) 0);
            var result = brokers.registerBroker(
                request,
                nextOffset,
                new FinalizedControllerFeatures(levels, Long.MAX_VALUE),
                version >= 3);
            return ControllerResult.of(
                result.records(),
                new BrokerRegistrationResponseData().setBrokerEpoch(result.response().epoch()));
        }

        private ControllerResult<BrokerHeartbeatResponseData> beat(
                BrokerHeartbeatRequestData request) {
            brokers.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
            long registered = brokers.registerBrokerRecordOffset(request.brokerId()).orElseThrow(
                Errors.STALE_BROKER_EPOCH::exception);
            var result = partitions.processBrokerHeartbeat(request, registered);
            var reply = result.response();
            if (reply.inControlledShutdown()) {
                // As QuorumController does, which replays the records before.
                long end = nextOffset + result.records().size() - 1;
                List<ApiMessageAndVersion> records = new ArrayList<>(result.records());
                records.forEach(this::replay);
                brokers.heartbeatManager().maybeUpdateControlledShutdownOffset(
                    request.brokerId(), end);
                alreadyReplayed = true;
            }
            return ControllerResult.of(
                result.records(),
                new BrokerHeartbeatResponseData()
                    .setIsCaughtUp(reply.isCaughtUp())
                    .setIsFenced(reply.isFenced())
                    .setShouldShutDown(reply.shouldShutDown()));
        }

        private boolean alreadyReplayed = false;

        /** Replays records, and returns them. */
        private String taken(List<ApiMessageAndVersion> records) {
            List<String> out = new ArrayList<>();
            for (ApiMessageAndVersion each : records) {
                if (!alreadyReplayed) replay(each);
                out.add(hex(each));
            }
            alreadyReplayed = false;
            return String.join(" ", out);
        }

        private void replay(ApiMessageAndVersion each) {
            ApiMessage record = each.message();
            if (record instanceof RegisterBrokerRecord it) brokers.replay(it, nextOffset);
            else if (record instanceof UnregisterBrokerRecord it) brokers.replay(it);
            else if (record instanceof BrokerRegistrationChangeRecord it) brokers.replay(it);
            else if (record instanceof TopicRecord it) partitions.replay(it);
            else if (record instanceof RemoveTopicRecord it) partitions.replay(it);
            else if (record instanceof PartitionRecord it) partitions.replay(it);
            else if (record instanceof PartitionChangeRecord it) partitions.replay(it);
            else if (record instanceof ClearElrRecord it) partitions.replay(it);
            else if (record instanceof ConfigRecord it) configs.replay(it);
            else if (record instanceof FeatureLevelRecord it) features.replay(it);
            else if (record instanceof ProducerIdsRecord it) producerIds.replay(it);
            else if (record instanceof ClientQuotaRecord it) quotas.replay(it);
            else if (record instanceof UserScramCredentialRecord it) credentials.replay(it);
            else if (record instanceof RemoveUserScramCredentialRecord it) credentials.replay(it);
            else throw new IllegalArgumentException(record.toString());
            nextOffset++;
        }
    }

    // -- records ------------------------------------------------------------------------------

    private static ApiMessageAndVersion read(String hex) {
        byte[] bytes = HexFormat.of().parseHex(hex);
        return MetadataRecordSerde.INSTANCE.read(
            new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length);
    }

    private static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = MetadataRecordSerde.INSTANCE.recordSize(record, cache);
        ByteBuffer buffer = ByteBuffer.allocate(size);
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }
}
