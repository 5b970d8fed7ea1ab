import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.generated.ClusterSummary;
import org.apache.storm.generated.Nimbus;
import org.apache.storm.generated.RebalanceOptions;
import org.apache.storm.generated.TopologySummary;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;

/**
 * A topology of a Kafka spout, two bolts and a Kafka bolt, with ackers: each record at least once. It is driven by lines on standard input,
 * so that a command costs no new JVM: "submit BROKER FROM TO WORKERS", "rebalance WORKERS", "status"; each is answered by one line.
 */
public class StormPass {
    private static final String NAME = "pass";

    /** Passes a record on. */
    public static class Pass extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            collector.emit(new Values(null, tuple.getValueByField("message")));
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("key", "message"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> configuration = Utils.readStormConfig();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        try (NimbusClient nimbus = connected(configuration)) {
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "submit" -> submit(words[1], words[2], words[3], Integer.parseInt(words[4]));
                    case "rebalance" -> rebalance(nimbus.getClient(), Integer.parseInt(words[1]));
                    default -> { }
                }
                System.out.println("told " + status(nimbus.getClient()));
            }
        }
    }

    /** Waits for a Nimbus that leads. */
    private static NimbusClient connected(Map<String, Object> configuration) throws InterruptedException {
        while (true) {
            try {
                return NimbusClient.Builder.withConf(configuration).build();
            } catch (RuntimeException notYet) {
                Thread.sleep(500);
            }
        }
    }

    private static void rebalance(Nimbus.Iface nimbus, int workers) throws Exception {
        RebalanceOptions options = new RebalanceOptions();
        options.set_wait_secs(0);
        options.set_num_workers(workers);
        nimbus.rebalance(NAME, options);
    }

    /** The topology's state, its workers and the supervisors: "ACTIVE 2 2"; "NONE 0 2" where there is no topology. */
    private static String status(Nimbus.Iface nimbus) throws Exception {
        ClusterSummary cluster = nimbus.getClusterInfo();
        String topology = "NONE 0";
        for (TopologySummary summary : cluster.get_topologies()) {
            topology = summary.get_status() + " " + summary.get_num_workers();
        }
        return topology + " " + cluster.get_supervisors_size();
    }

    private static void submit(String broker, String from, String to, int workers) throws Exception {
        KafkaSpoutConfig<String, String> spout =
                KafkaSpoutConfig.builder(broker, from)
                        .setProp("group.id", NAME)
                        .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
                        .setProcessingGuarantee(KafkaSpoutConfig.ProcessingGuarantee.AT_LEAST_ONCE)
                        .setPollTimeoutMs(5)
                        .setOffsetCommitPeriodMs(1000)
                        .setRecordTranslator(record -> new Values(record.key(), record.value()), new Fields("key", "message"))
                        .build();
        Properties producer = new Properties();
        producer.put("bootstrap.servers", broker);
        producer.put("acks", "all");
        producer.put("linger.ms", "0");
        producer.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producer.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        TopologyBuilder topology = new TopologyBuilder();
        topology.setSpout("spout", new KafkaSpout<>(spout), 2);
        topology.setBolt("first", new Pass(), 2).localOrShuffleGrouping("spout");
        topology.setBolt("second", new Pass(), 2).localOrShuffleGrouping("first");
        topology.setBolt(
                        "third",
                        new KafkaBolt<String, String>()
                                .withProducerProperties(producer)
                                .withTopicSelector(to)
                                .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "message")),
                        2)
                .localOrShuffleGrouping("second");
        Config configuration = new Config();
        configuration.setNumWorkers(workers);
        configuration.setNumAckers(workers);
        configuration.setMaxSpoutPending(5000);
        configuration.setMessageTimeoutSecs(30);
        StormSubmitter.submitTopology(NAME, configuration, topology.createTopology());
    }
}
