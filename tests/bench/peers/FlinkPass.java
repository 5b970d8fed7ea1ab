import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A job that passes the bytes of one topic on to another. Arguments: its name, from, to, the broker. */
public class FlinkPass {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[0], from = arguments[1], to = arguments[2], broker = arguments[3];
        KafkaSource<byte[]> source =
                KafkaSource.<byte[]>builder()
                        .setBootstrapServers(broker)
                        .setTopics(from)
                        .setGroupId(name)
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setDeserializer(KafkaRecordDeserializationSchema.valueOnly(ByteArrayDeserializer.class))
                        .build();
        KafkaSink<byte[]> sink =
                KafkaSink.<byte[]>builder()
                        .setBootstrapServers(broker)
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<byte[]>builder()
                                        .setTopic(to)
                                        .setKafkaValueSerializer(ByteArraySerializer.class)
                                        .build())
                        .setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE)
                        .setProperty("linger.ms", "0")
                        .build();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.getConfig().enableObjectReuse();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), from).sinkTo(sink);
        environment.execute(name);
    }
}
