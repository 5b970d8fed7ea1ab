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
 * Ends the executor with the first record that Kafka does not take, before its producer sends a later one (decision record 0033), and
 * writes into records up to where everything before them is acknowledged (decision record 0044).
 *
 * A producer tells of a record that is not taken on the thread that sends, before it sends anything else; or on the task's, which cannot
 * hand it over, and would read on: Spark looks only as it writes the next one. Any other error there is one that the task ends with, or
 * was told to end by. The producer's own time limits go by the wall clock; this class holds them on the monotonic one.
 */
public class ProducerGuard implements ProducerInterceptor, Runnable {
    private static final int NOT_IN_TIME = 75;
    private static final int REFUSED = 76;
    private static final String SENDER = "kafka-producer-network-thread";
    private static final long LOOK_MS = 250;
    private static final long LATE_MS = 500;
    /** At least each so many-th record of a partition tells, also where nothing was acknowledged since. */
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
            flight(record.topic(), record.partition()).sent.decrementAndGet(); // it was not handed over
        }
    }

    /** Ends the executor when a record is not acknowledged in time, whatever the wall clock says. */
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

    /** Writes into a record of a tier up to where everything before it is out. Only what its own task has handed over is concerned. */
    private void tell(ProducerRecord record) {
        Header from = record.headers().lastHeader("from");
        Header by = record.headers().lastHeader("by");
        if (from == null || by == null) {
            return;
        }
        byte[] place = from.value();
        int colon = place.length - 1;
        long offset = 0;
        for (long unit = 1; place[colon] != ':'; unit *= 10) {
            offset += unit * (place[colon] - '0');
            colon--;
        }
        Source source = (Source) sources.get();
        if (source == null || !source.is(place, colon, by.value())) {
            source = new Source(Arrays.copyOf(place, colon), by.value());
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
     * How many records were handed over for one partition of an output, and how many of them are acknowledged.
     *
     * A broker takes the records of a producer in the order in which they were handed over, so the acknowledged ones are always the first
     * ones. `sent` counts a record before it is handed over: it is never less than what was.
     */
    private static class Flight {
        final AtomicLong sent = new AtomicLong();
        final AtomicLong acked = new AtomicLong();
        /** How many were sent, and since when; of which not all are acknowledged. */
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

    /** One partition of the input, as the task that this thread runs reads it: in order, each record handed over before the next is read. */
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

        /** Looks whether more is out, as the record of `offset` is about to be handed over; returns whether that record is to tell it. */
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

        /** All before `offset` was handed over; it is out once as many are acknowledged, of each partition, as were sent by now. */
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
