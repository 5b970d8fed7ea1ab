package sluice;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;

/**
 * Ends the executor with the first record that Kafka refuses, before its producer sends a later record
 * (decision 33). Also writes into records up to which input offset all output before them is
 * acknowledged (decision 44).
 *
 * A producer reports a refused record on its sender thread, before it sends anything else. Or it reports
 * on the task's thread, which could not hand the record over and would read on, because Spark checks for
 * errors only when it writes the next record. Other errors on the task's thread end the task, or come
 * from its end. The producer's own time limits use the wall clock; this class uses the monotonic clock.
 */
public class ProducerGuard implements ProducerInterceptor, Runnable {
    private static final int NOT_IN_TIME = 75;
    private static final int REFUSED = 76;
    private static final String SENDER = "kafka-producer-network-thread";
    private static final long LOOK_MS = 250;
    private static final long LATE_MS = 500;
    /** At least every 16th record of a partition carries the offset, also without new acknowledgements. */
    private static final int AT_LEAST_EACH = 16;

    private final ConcurrentHashMap topics = new ConcurrentHashMap();
    private final ThreadLocal sources = new ThreadLocal();
    private volatile Flight[] flights = new Flight[0];
    private volatile boolean closed = false;
    private long giveUpNanos;

    public void configure(Map settings) {
        giveUpNanos = (Long.parseLong(String.valueOf(settings.get("delivery.timeout.ms"))) + LATE_MS) * 1000000L;
        Thread thread = new Thread(this, "sluice-ends-at-hole");
        thread.setDaemon(true);
        thread.start();
    }

    public ProducerRecord onSend(ProducerRecord record) {
        tell(record);
        // records name their partition: sluice.records.routing
        flight(record.topic(), record.partition().intValue()).sent.incrementAndGet();
        return record;
    }

    public void onAcknowledgement(RecordMetadata record, Exception error) {
        if (error == null) {
            flight(record.topic(), record.partition()).acked.incrementAndGet();
        } else if (error instanceof ApiException || Thread.currentThread().getName().startsWith(SENDER)) {
            end("Kafka has not taken a record, and this executor ends before it puts a later one: " + error,
                error instanceof TimeoutException ? NOT_IN_TIME : REFUSED);
        } else {
            flight(record.topic(), record.partition()).sent.decrementAndGet(); // the record was not handed over
        }
    }

    /** Ends the executor when a record is not acknowledged in time, by the monotonic clock. */
    public void run() {
        while (!closed) {
            long now = System.nanoTime();
            Flight[] all = flights;
            for (int i = 0; i < all.length; i++) {
                if (all[i].isLate(now, giveUpNanos)) {
                    end("Kafka has not acknowledged a record in time, and this executor ends", NOT_IN_TIME);
                }
            }
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException interrupted) {
                return;
            }
        }
    }

    public void close() {
        closed = true;
    }

    private static void end(String why, int code) {
        System.err.println(why);
        Runtime.getRuntime().halt(code);
    }

    /** Writes into a record of a tier the offset before which all output of its own task is acknowledged. */
    private void tell(ProducerRecord record) {
        Header lineage = record.headers().lastHeader("lineage");
        if (lineage != null) {
            byte[] words = lineage.value();
            int place = next(words, next(words, 0));
            int by = next(words, place);
            tell(record, Arrays.copyOfRange(words, place, by - 1), Arrays.copyOfRange(words, by, next(words, by) - 1));
            return;
        }
        Header from = record.headers().lastHeader("from");
        Header by = record.headers().lastHeader("by");
        if (from != null && by != null) {
            tell(record, from.value(), by.value());
        }
    }

    /** Returns where the next word begins, behind a space. */
    private static int next(byte[] words, int at) {
        while (words[at] != ' ') {
            at++;
        }
        return at + 1;
    }

    private void tell(ProducerRecord record, byte[] place, byte[] by) {
        int colon = place.length - 1;
        long offset = 0;
        for (long unit = 1; place[colon] != ':'; unit *= 10) {
            offset += unit * (place[colon] - '0');
            colon--;
        }
        Source source = (Source) sources.get();
        if (source == null || !source.is(place, colon, by)) {
            source = new Source(Arrays.copyOf(place, colon), by);
            sources.set(source);
        }
        if (source.tells(offset, flights)) {
            record.headers().add("acked", Long.toString(source.acked).getBytes(StandardCharsets.US_ASCII));
        }
    }

    private Flight flight(String topic, int partition) {
        Flight[] each = (Flight[]) topics.get(topic);
        return each != null && partition < each.length && each[partition] != null ? each[partition] : newFlight(topic, partition);
    }

    private synchronized Flight newFlight(String topic, int partition) {
        Flight[] each = (Flight[]) topics.get(topic);
        if (each != null && partition < each.length && each[partition] != null) {
            return each[partition];
        }
        Flight[] wider = each == null ? new Flight[partition + 1] : (Flight[]) Arrays.copyOf(each, Math.max(each.length, partition + 1));
        wider[partition] = new Flight();
        Flight[] all = (Flight[]) Arrays.copyOf(flights, flights.length + 1);
        all[flights.length] = wider[partition];
        topics.put(topic, wider);
        flights = all;
        return wider[partition];
    }

    /**
     * The numbers of records handed over for one output partition, and acknowledged by Kafka.
     *
     * A broker takes the records of a producer in the order of the handover, so the first ones are
     * acknowledged first. `sent` counts a record before its handover, so it is never too small.
     */
    private static class Flight {
        final AtomicLong sent = new AtomicLong();
        final AtomicLong acked = new AtomicLong();
        /** Pairs of a number of sent records and the time when it was seen, until all of them are acknowledged. */
        private final ArrayDeque marks = new ArrayDeque();

        boolean isLate(long now, long limit) {
            long put = sent.get();
            long done = acked.get();
            if (done >= put) {
                marks.clear();
                return false;
            }
            while (!marks.isEmpty() && ((long[]) marks.peekFirst())[0] <= done) {
                marks.removeFirst();
            }
            if (marks.isEmpty() || ((long[]) marks.peekLast())[0] < put) {
                marks.addLast(new long[] {put, now});
            }
            return now - ((long[]) marks.peekFirst())[1] > limit;
        }
    }

    /** One input partition, as this thread's task reads it: in order, with each output handed over before the next read. */
    private static class Source {
        long acked = -1;
        private final byte[] partition;
        private final byte[] by;
        private long claim = -1;
        private Flight[] waits = new Flight[0];
        private long[] until = new long[0];
        private int left = 0;
        private int silent = 0;

        Source(byte[] partition, byte[] by) {
            this.partition = partition;
            this.by = by;
        }

        boolean is(byte[] place, int length, byte[] run) {
            return Arrays.equals(partition, 0, partition.length, place, 0, length) && Arrays.equals(by, run);
        }

        /** Checks for new acknowledgements before the record of `offset` is handed over; returns whether it carries the offset. */
        boolean tells(long offset, Flight[] flights) {
            boolean news = isOut();
            if (claim < 0 && offset > acked) {
                wait(offset, flights);
                news |= isOut();
            }
            silent = news ? 0 : silent + 1;
            if (silent >= AT_LEAST_EACH) {
                silent = 0;
            }
            return acked >= 0 && silent == 0;
        }

        /** All output before `offset` was handed over. It is complete once all records sent by now are acknowledged. */
        private void wait(long offset, Flight[] flights) {
            if (waits.length < flights.length) {
                waits = new Flight[flights.length];
                until = new long[flights.length];
            }
            claim = offset;
            left = 0;
            for (int i = 0; i < flights.length; i++) {
                long sent = flights[i].sent.get();
                if (flights[i].acked.get() < sent) {
                    waits[left] = flights[i];
                    until[left] = sent;
                    left++;
                }
            }
        }

        private boolean isOut() {
            while (left > 0 && waits[left - 1].acked.get() >= until[left - 1]) {
                left--;
            }
            if (claim < 0 || left > 0) {
                return false;
            }
            acked = claim;
            claim = -1;
            return true;
        }
    }
}
