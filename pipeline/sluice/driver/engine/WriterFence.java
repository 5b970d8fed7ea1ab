package sluice;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Ends the executor when its incarnation loses the right to write (decision 47).
 *
 * A thread follows the control topic. The executor ends at the first value that no longer names its
 * incarnation as a writer of the tier (`ops/sluice_ops/model/stream_writers.py` has the same rule). It
 * writes no record after VALID_MS in which the topic was not read to its end.
 */
public class WriterFence implements ProducerInterceptor {
    private static Right right;

    private Right mine;

    public ProducerRecord onSend(ProducerRecord record) {
        if (mine != null) {
            mine.await();
        }
        return record;
    }

    public void onAcknowledgement(RecordMetadata record, Exception error) {
    }

    public void close() {
    }

    public void configure(Map settings) {
        if (settings.get("sluice.tier") != null) {
            mine = of(settings);
        }
    }

    private static synchronized Right of(Map settings) {
        if (right == null) {
            right = new Right(settings);
            Thread thread = new Thread(right, "sluice-writers");
            thread.setDaemon(true);
            thread.start();
        }
        right.claimed(Long.parseLong((String) settings.get("sluice.term")), Long.parseLong((String) settings.get("sluice.epoch")));
        return right;
    }

    /** The right of this executor's incarnation; an executor serves one incarnation. */
    static class Right implements Runnable {
        private static final int FENCED = 77;
        private static final long VALID_MS = 20000;
        private static final int LOOK_MS = 2500;
        private static final Duration ANSWER = Duration.ofSeconds(8);

        private final ObjectMapper json = new ObjectMapper();
        private final Map client = new HashMap();
        private final TopicPartition place;
        private final String tier;
        private final long incarnation;
        private long term = -1;
        private long epoch = -1;
        private volatile boolean known = false;
        /** When the end of the topic was last asked for that was reached since. On the monotonic clock, which
         * never jumps, and on the wall clock, which goes on while the machine is suspended. */
        private volatile long nanos;
        private volatile long wall;

        Right(Map settings) {
            for (Iterator each = settings.keySet().iterator(); each.hasNext();) {
                String key = (String) each.next();
                if (key.equals("bootstrap.servers") || key.matches("(security|sasl|ssl|config)[.].*")) {
                    client.put(key, settings.get(key));
                }
            }
            client.put("key.deserializer", ByteArrayDeserializer.class);
            client.put("value.deserializer", ByteArrayDeserializer.class);
            client.put("enable.auto.commit", "false");
            client.put("allow.auto.create.topics", "false");
            client.put("auto.offset.reset", "earliest");
            client.put("fetch.max.wait.ms", String.valueOf(LOOK_MS));
            place = new TopicPartition((String) settings.get("sluice.topic"), 0);
            tier = (String) settings.get("sluice.tier");
            incarnation = Long.parseLong((String) settings.get("sluice.incarnation"));
        }

        /** Use a later claim of this incarnation. */
        synchronized void claimed(long claimedTerm, long claimedEpoch) {
            if (isAfter(claimedTerm, claimedEpoch)) {
                term = claimedTerm;
                epoch = claimedEpoch;
            }
        }

        /** Wait until the right is confirmed. The producer swallows exceptions and sends the record, but not an Error. */
        void await() {
            while (!isKnown()) {
                try {
                    Thread.sleep(20);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                    throw new Error("the task was ended while it waited for the right to write to be confirmed");
                }
            }
        }

        private boolean isKnown() {
            return known && System.nanoTime() - nanos < VALID_MS * 1000000 && System.currentTimeMillis() - wall < VALID_MS;
        }

        public void run() {
            String told = "";
            while (true) {
                try {
                    follow();
                } catch (Exception error) {
                    if (!String.valueOf(error).equals(told)) {
                        told = String.valueOf(error);
                        System.err.println("the control topic cannot be followed; the executor retries: " + told);
                    }
                    pause();
                }
            }
        }

        /** Follow the topic from its beginning, until it is recreated or Kafka does not answer. */
        private void follow() {
            KafkaConsumer consumer = new KafkaConsumer(client);
            try {
                consumer.assign(Collections.singletonList(place));
                consumer.seekToBeginning(Collections.singletonList(place));
                while (true) {
                    long askedNanos = System.nanoTime();
                    long askedWall = System.currentTimeMillis();
                    List there = consumer.partitionsFor(place.topic(), ANSWER);
                    if (there == null || there.isEmpty()) { // without the topic there is no fence
                        confirm(askedNanos, askedWall);
                        pause();
                        return;
                    }
                    long end = ((Long) consumer.endOffsets(Collections.singletonList(place), ANSWER).get(place)).longValue();
                    if (consumer.position(place, ANSWER) > end) {
                        return;
                    }
                    boolean more = true;
                    while (more) {
                        if (consumer.position(place, ANSWER) >= end) {
                            confirm(askedNanos, askedWall);
                            more = false;
                        }
                        for (Iterator each = consumer.poll(Duration.ofMillis(LOOK_MS)).iterator(); each.hasNext();) {
                            hear((ConsumerRecord) each.next());
                        }
                        if (more && System.nanoTime() - askedNanos > VALID_MS * 1000000) {
                            return;
                        }
                    }
                }
            } finally {
                consumer.close(Duration.ofSeconds(1));
            }
        }

        private void confirm(long askedNanos, long askedWall) {
            nanos = askedNanos;
            wall = askedWall;
            known = true;
        }

        private void hear(ConsumerRecord record) {
            if (record.key() == null || record.value() == null || !tier.equals(new String((byte[]) record.key()))) {
                return;
            }
            try {
                Map value = (Map) json.readValue((byte[]) record.value(), Map.class);
                if (ends(number(value.get("term")), number(value.get("epoch")), (List) value.get("members"))) {
                    System.err.println("another incarnation has the right to write tier " + tier + ", and this executor ends: " + value);
                    Runtime.getRuntime().halt(FENCED);
                }
            } catch (Exception error) {
                System.err.println("a record of the control topic cannot be read: " + error);
            }
        }

        private synchronized boolean ends(long otherTerm, long otherEpoch, List members) {
            if (!isAfter(otherTerm, otherEpoch)) {
                return false;
            }
            for (Iterator each = members.iterator(); each.hasNext();) {
                if (number(each.next()) == incarnation && otherTerm == term) {
                    return false;
                }
            }
            return true;
        }

        private static long number(Object value) {
            return ((Number) value).longValue();
        }

        private boolean isAfter(long otherTerm, long otherEpoch) {
            return otherTerm > term || (otherTerm == term && otherEpoch > epoch);
        }

        private static void pause() {
            try {
                Thread.sleep(1000);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
