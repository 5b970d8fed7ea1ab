package sluice;

import java.util.Map;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Ends the executor with the first record that Kafka does not take, before its producer sends a later one (decision record 0033).
 *
 * A producer tells of it on the thread that sends, before it sends anything else; or on the task's, which cannot hand it over, and would
 * read on: Spark looks only as it writes the next one. Any other error there is one that the task ends with, or was told to end by.
 */
public class EndsAtHole implements ProducerInterceptor {
    private static final int NOT_IN_TIME = 75;
    private static final int REFUSED = 76;
    private static final String SENDER = "kafka-producer-network-thread";

    public ProducerRecord onSend(ProducerRecord record) {
        return record;
    }

    public void onAcknowledgement(RecordMetadata record, Exception error) {
        if (error instanceof ApiException || (error != null && Thread.currentThread().getName().startsWith(SENDER))) {
            System.err.println("Kafka has not taken a record, and this executor ends before it puts a later one: " + error);
            Runtime.getRuntime().halt(error instanceof TimeoutException ? NOT_IN_TIME : REFUSED);
        }
    }

    public void close() {
    }

    public void configure(Map settings) {
    }
}
