package sluice;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Returns a record's Avro in the schema with which the tier reads, or the reason why the record cannot be
 * read (decision 96).
 *
 * The record names its writer's schema. An executor asks the registry for each schema once. While the
 * registry does not answer, the task waits: a record of an unknown schema may be a good one.
 * `sluice.records.formats` compiles this class. Each task has a copy, so one thread uses its fields.
 */
public class AvroReader implements UDF1 {
    private static final Logger LOG = LoggerFactory.getLogger("sluice.AvroReader");
    private static final int HEADER = 5;
    private static final int TIMEOUT_MS = 5000;
    private static final long RETRY_MS = 1000;
    private static final int TRIES_PER_WARNING = 10;
    /** How long an id counts as unknown after the registry said so. */
    private static final long UNKNOWN_NANOS = 10L * 1000L * 1000L * 1000L;
    private static final int NO_SUCH_SCHEMA = 40403;
    /** Schemas, and reasons why there is none, by address: a registry never changes the schema of an id. */
    private static final ConcurrentHashMap SCHEMAS = new ConcurrentHashMap();
    private static final ConcurrentHashMap UNKNOWN = new ConcurrentHashMap();

    private final String registry;
    private final int published;
    private final String text;
    private transient Schema schema;
    private transient HashMap readers;

    /** `registry` may be null; `published` is the id of the schema `text`, or -1. */
    public AvroReader(String registry, int published, String text) {
        this.registry = registry;
        this.published = published;
        this.text = text;
    }

    public Object call(Object value) throws Exception {
        byte[] record = (byte[]) value;
        if (record == null) {
            return unreadable("the record has no value, so it is not Avro");
        }
        if (record.length < HEADER || record[0] != 0) {
            return unreadable("the record does not begin with a byte 0 and the id of a schema; "
                + "its sender must use the Avro serializer of the schema registry");
        }
        int id = ByteBuffer.wrap(record, 1, HEADER - 1).getInt();
        if (id == published) {
            return readable(Arrays.copyOfRange(record, HEADER, record.length));
        }
        Object found = find(id);
        if (found instanceof String) {
            return unreadable((String) found);
        }
        return read(record, id, (Schema) found);
    }

    private Object read(byte[] record, int id, Schema writer) {
        if (schema == null) {
            schema = new Schema.Parser().parse(text);
            readers = new HashMap();
        }
        if (writer.equals(schema)) {
            return readable(Arrays.copyOfRange(record, HEADER, record.length));
        }
        GenericDatumReader reader = (GenericDatumReader) readers.get(Integer.valueOf(id));
        if (reader == null) {
            reader = new GenericDatumReader(writer, schema);
            readers.put(Integer.valueOf(id), reader);
        }
        try {
            Object datum = reader.read(
                null, DecoderFactory.get().binaryDecoder(record, HEADER, record.length - HEADER, null));
            ByteArrayOutputStream out = new ByteArrayOutputStream(record.length);
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
            new GenericDatumWriter(schema).write(datum, encoder);
            encoder.flush();
            return readable(out.toByteArray());
        } catch (Exception error) {
            return unreadable("the record, of schema id " + id
                + ", cannot be read with the stream's published Avro schema: " + error.getMessage());
        }
    }

    /** Returns the schema of an id, or the reason why there is none; waits while the registry is away. */
    private Object find(int id) throws InterruptedException {
        if (registry == null) {
            return "the schema id " + id + " is unknown here, because no schema registry is known";
        }
        String url = registry + "/schemas/ids/" + id;
        Object known = SCHEMAS.get(url);
        Long since = (Long) UNKNOWN.get(url);
        if (known == null && since != null && System.nanoTime() - since.longValue() < UNKNOWN_NANOS) {
            known = unknown(id);
        }
        for (int tries = 0; known == null; tries++) {
            try {
                known = ask(url, id);
            } catch (IOException away) {
                if (tries % TRIES_PER_WARNING == 0) {
                    LOG.warn("the schema registry does not answer, so records of schema id " + id
                        + " and those after them wait; make " + url + " answer: " + away);
                }
                Thread.sleep(RETRY_MS);
            }
        }
        return known;
    }

    /** Asks the registry once; IOException if it does not answer as a registry does. */
    private Object ask(String url, int id) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) URI.create(url).toURL().openConnection();
        connection.setConnectTimeout(TIMEOUT_MS);
        connection.setReadTimeout(TIMEOUT_MS);
        connection.setRequestProperty("Accept", "application/vnd.schemaregistry.v1+json, application/json");
        int status = connection.getResponseCode();
        InputStream body = status == 200 ? connection.getInputStream() : connection.getErrorStream();
        String answer = body == null ? "" : new String(body.readAllBytes(), StandardCharsets.UTF_8);
        JsonNode said = status == 200 || status == 404 ? new ObjectMapper().readTree(answer) : null;
        if (status == 404 && field(said, "error_code").asInt() == NO_SUCH_SCHEMA) {
            UNKNOWN.put(url, Long.valueOf(System.nanoTime()));
            return unknown(id);
        }
        if (status != 200) {
            throw new IOException("status " + status);
        }
        Object found = parsed(said, id);
        SCHEMAS.put(url, found);
        return found;
    }

    private static Object parsed(JsonNode answer, int id) {
        String kind = field(answer, "schemaType").asText("AVRO");
        if (!kind.equals("AVRO")) {
            return "the schema id " + id + " is " + kind + ", not AVRO";
        }
        if (field(answer, "references").size() > 0) {
            return "the schema id " + id + " refers to other schemas, which Sluice does not read";
        }
        try {
            return new Schema.Parser().parse(field(answer, "schema").asText());
        } catch (Exception error) {
            return "the schema id " + id + " cannot be parsed: " + error.getMessage();
        }
    }

    private static JsonNode field(JsonNode object, String name) {
        return (JsonNode) object.path(name); // the cast is for the compiler, which sees another `path`
    }

    private String unknown(int id) {
        return "the schema registry " + registry + " has no schema with the id " + id;
    }

    private static Object readable(byte[] payload) {
        return RowFactory.create(new Object[] {payload, null});
    }

    private static Object unreadable(String reason) {
        return RowFactory.create(new Object[] {null, reason});
    }
}
