package sluice;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.Descriptors.OneofDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.MessageLite;
import com.google.protobuf.UninitializedMessageException;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;

/**
 * What a tier reads and writes as Protobuf (decision 100): rows of the types that
 * `sluice.records.protobuf` gives to the fields of a message. That module compiles these classes.
 *
 * Each task has a copy of a function, so one thread uses its fields.
 */
public class ProtobufFunctions {
    private static final int HEADER = 5;
    /** The place of the first message of a file, which a record may write as a single 0. */
    private static final List FIRST = Arrays.asList(new Object[] {Integer.valueOf(0)});
    private static final String TIMESTAMP = "google.protobuf.Timestamp";
    private static final long MICROS = 1000L * 1000L;
    /** The years 1 to 9999, which a Timestamp may have. Unit: seconds. */
    private static final long FIRST_SECOND = -62135596800L, LAST_SECOND = 253402300799L;
    private static final BigInteger LAST_UINT64 = BigInteger.ONE.shiftLeft(64).subtract(BigInteger.ONE);

    /** A value has no place in the other form; the message says why. */
    private static class Misfit extends Exception {
        Misfit(String reason) {
            super(reason);
        }
    }

    /** The message of a stream. */
    public abstract static class Codec implements UDF1 {
        protected final byte[] place;
        private final byte[] files;
        private transient Descriptor message;

        /** `files`: a FileDescriptorSet, the file of the message last; `place`: as records have it. */
        protected Codec(byte[] files, byte[] place) {
            this.files = files;
            this.place = place;
        }

        protected Descriptor message() throws Exception {
            if (message == null) {
                FileDescriptorSet set = FileDescriptorSet.parseFrom(files);
                HashMap built = new HashMap();
                FileDescriptor last = null;
                for (int number = 0; number < set.getFileCount(); number++) {
                    last = built(set.getFile(number), built);
                    built.put(last.getName(), last);
                }
                List messages = last.getMessageTypes();
                for (Iterator each = place(CodedInputStream.newInstance(place)).iterator(); each.hasNext();) {
                    message = (Descriptor) messages.get(((Integer) each.next()).intValue());
                    messages = message.getNestedTypes();
                }
            }
            return message;
        }

        private static FileDescriptor built(FileDescriptorProto file, HashMap built) throws Exception {
            FileDescriptor[] imported = new FileDescriptor[file.getDependencyCount()];
            for (int number = 0; number < imported.length; number++) {
                imported[number] = (FileDescriptor) built.get(file.getDependency(number));
            }
            return FileDescriptor.buildFrom(file, imported);
        }

        /** Returns the place of a message: its number in its file, after those of the messages around it. */
        protected static List place(CodedInputStream input) throws IOException {
            int count = input.readSInt32();
            if (count == 0) {
                return FIRST;
            }
            ArrayList numbers = new ArrayList();
            for (int number = 0; number < count; number++) {
                numbers.add(Integer.valueOf(input.readSInt32()));
            }
            return numbers;
        }

        protected static boolean isTime(Descriptor message) {
            return message.getFullName().equals(TIMESTAMP);
        }
    }

    /** Returns a record's fields, or the reason why the record cannot be read. */
    public static class Reader extends Codec {
        public Reader(byte[] files, byte[] place) {
            super(files, place);
        }

        public Object call(Object value) throws Exception {
            byte[] record = (byte[]) value;
            if (record == null) {
                return unreadable("the record has no value, so it is not Protobuf");
            }
            if (record.length <= HEADER || record[0] != 0) {
                return unreadable("the record does not begin with a byte 0 and the id of a schema; "
                    + "its sender must use the Protobuf serializer of the schema registry");
            }
            Descriptor message = message();
            try {
                CodedInputStream input = CodedInputStream.newInstance(record, HEADER, record.length - HEADER);
                List given = place(input);
                List declared = place(CodedInputStream.newInstance(place));
                if (!given.equals(declared)) {
                    return unreadable("the record is of the message " + given + " of its schema, but the stream has "
                        + message.getFullName() + ", which is " + declared);
                }
                int begin = HEADER + input.getTotalBytesRead();
                DynamicMessage.Builder builder = DynamicMessage.newBuilder(message);
                // the cast is for the compiler, which cannot choose among the methods of the classes
                ((MessageLite.Builder) builder).mergeFrom(record, begin, record.length - begin);
                return RowFactory.create(new Object[] {row((Message) builder.build()), null});
            } catch (IOException broken) {
                return unreadable(message, broken);
            } catch (UninitializedMessageException incomplete) {
                return unreadable(message, incomplete);
            } catch (Misfit misfit) {
                return unreadable(message, misfit);
            }
        }

        private static Row row(Message message) throws Misfit {
            List fields = message.getDescriptorForType().getFields();
            Object[] values = new Object[fields.size()];
            for (int number = 0; number < values.length; number++) {
                FieldDescriptor field = (FieldDescriptor) fields.get(number);
                refuseUnknown(message, field);
                if (field.isMapField()) {
                    values[number] = map((List) message.getField(field));
                } else if (field.isRepeated()) {
                    ArrayList items = new ArrayList();
                    for (Iterator each = ((List) message.getField(field)).iterator(); each.hasNext();) {
                        items.add(one(field, each.next()));
                    }
                    values[number] = items;
                } else if (!field.hasPresence() || message.hasField(field)) {
                    values[number] = one(field, message.getField(field));
                }
            }
            return RowFactory.create(values);
        }

        /** A known field among the unknown ones: of another type, or a symbol of a closed enum. */
        private static void refuseUnknown(Message message, FieldDescriptor field) throws Misfit {
            if (message.getUnknownFields().hasField(field.getNumber())) {
                throw new Misfit("the field " + field.getName()
                    + " has a value of another type, or an enum number that the schema lacks");
            }
        }

        private static LinkedHashMap map(List entries) throws Misfit {
            LinkedHashMap items = new LinkedHashMap();
            for (Iterator each = entries.iterator(); each.hasNext();) {
                Message entry = (Message) each.next();
                Object[] item = new Object[2];
                for (int number = 0; number < item.length; number++) {
                    FieldDescriptor field = entry.getDescriptorForType().findFieldByNumber(number + 1);
                    refuseUnknown(entry, field);
                    item[number] = one(field, entry.getField(field));
                }
                items.put(item[0], item[1]);
            }
            return items;
        }

        private static Object one(FieldDescriptor field, Object value) throws Misfit {
            FieldDescriptor.Type type = field.getType();
            if (type == FieldDescriptor.Type.MESSAGE) {
                return isTime(field.getMessageType()) ? (Object) time(field, (Message) value) : row((Message) value);
            }
            if (type == FieldDescriptor.Type.ENUM) {
                EnumValueDescriptor symbol = (EnumValueDescriptor) value;
                if (symbol.getIndex() < 0) {
                    throw new Misfit("the field " + field.getName() + " has the enum number " + symbol.getNumber()
                        + ", which the schema lacks");
                }
                return symbol.getName();
            }
            if (type == FieldDescriptor.Type.BYTES) {
                return ((ByteString) value).toByteArray();
            }
            if (type == FieldDescriptor.Type.UINT32 || type == FieldDescriptor.Type.FIXED32) {
                return Long.valueOf(Integer.toUnsignedLong(((Integer) value).intValue()));
            }
            if (type == FieldDescriptor.Type.UINT64 || type == FieldDescriptor.Type.FIXED64) {
                return new BigDecimal(Long.toUnsignedString(((Long) value).longValue()));
            }
            return value;
        }

        private static Instant time(FieldDescriptor field, Message value) throws Misfit {
            Descriptor time = value.getDescriptorForType();
            long seconds = ((Long) value.getField(time.findFieldByNumber(1))).longValue();
            int nanos = ((Integer) value.getField(time.findFieldByNumber(2))).intValue();
            if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos >= 1000 * 1000 * 1000) {
                throw new Misfit("the field " + field.getName() + " is no time of the years 1 to 9999");
            }
            return Instant.ofEpochSecond(seconds, nanos);
        }

        private static Object unreadable(Descriptor message, Exception error) {
            return unreadable("the record is not a valid " + message.getFullName() + ": " + error.getMessage());
        }

        private static Object unreadable(String reason) {
            return RowFactory.create(new Object[] {null, reason});
        }
    }

    /** Returns the bytes of a record, or the reason why its message has no place for a value. */
    public static class Writer extends Codec {
        private final byte[] header;

        /** `header`: a byte 0 and the id of the schema. */
        public Writer(byte[] files, byte[] place, byte[] header) {
            super(files, place);
            this.header = header;
        }

        public Object call(Object value) throws Exception {
            Descriptor message = message();
            try {
                DynamicMessage.Builder builder = filled(message, (Row) value);
                if (!builder.isInitialized()) {
                    throw new Misfit("required, but null: " + builder.getInitializationErrorString());
                }
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                bytes.write(header);
                bytes.write(place);
                ((Message) builder.build()).writeTo(bytes);
                return RowFactory.create(new Object[] {bytes.toByteArray(), null});
            } catch (Misfit misfit) {
                return RowFactory.create(new Object[] {null, misfit.getMessage()});
            }
        }

        private static DynamicMessage.Builder filled(Descriptor message, Row row) throws Misfit {
            DynamicMessage.Builder builder = DynamicMessage.newBuilder(message);
            List fields = message.getFields();
            for (int number = 0; number < fields.size(); number++) {
                FieldDescriptor field = (FieldDescriptor) fields.get(number);
                if (row.isNullAt(number)) {
                    continue;
                }
                if (field.isMapField()) {
                    addMap(builder, field, row.getJavaMap(number));
                } else if (field.isRepeated()) {
                    for (Iterator each = row.getList(number).iterator(); each.hasNext();) {
                        builder.addRepeatedField(field, one(field, each.next()));
                    }
                } else {
                    refuseSecond(builder, field);
                    builder.setField(field, one(field, row.get(number)));
                }
            }
            return builder;
        }

        private static void refuseSecond(DynamicMessage.Builder builder, FieldDescriptor field) throws Misfit {
            OneofDescriptor choice = field.getContainingOneof();
            if (choice != null && builder.hasOneof(choice)) {
                throw new Misfit("the oneof " + choice.getName() + " has two values: "
                    + builder.getOneofFieldDescriptor(choice).getName() + " and " + field.getName());
            }
        }

        private static void addMap(DynamicMessage.Builder builder, FieldDescriptor field, Map items) throws Misfit {
            Descriptor entry = field.getMessageType();
            FieldDescriptor key = entry.findFieldByNumber(1);
            FieldDescriptor value = entry.findFieldByNumber(2);
            for (Iterator each = items.entrySet().iterator(); each.hasNext();) {
                Map.Entry item = (Map.Entry) each.next();
                DynamicMessage.Builder made = DynamicMessage.newBuilder(entry);
                made.setField(key, one(field, key, item.getKey()));
                made.setField(value, one(field, value, item.getValue()));
                builder.addRepeatedField(field, made.buildPartial());
            }
        }

        private static Object one(FieldDescriptor field, Object value) throws Misfit {
            return one(field, field, value);
        }

        /** Returns a value as `field` takes it; `named` is the field that a reason names. */
        private static Object one(FieldDescriptor named, FieldDescriptor field, Object value) throws Misfit {
            FieldDescriptor.Type type = field.getType();
            if (value == null) {
                throw new Misfit("the field " + named.getName() + " has a null among its values");
            }
            if (type == FieldDescriptor.Type.MESSAGE) {
                Descriptor message = field.getMessageType();
                return isTime(message) ? time(named, message, (Timestamp) value)
                    : filled(message, (Row) value).buildPartial();
            }
            if (type == FieldDescriptor.Type.ENUM) {
                EnumValueDescriptor symbol = field.getEnumType().findValueByName((String) value);
                if (symbol == null) {
                    throw new Misfit("the field " + named.getName() + " is " + value + ", which "
                        + field.getEnumType().getFullName() + " lacks");
                }
                return symbol;
            }
            if (type == FieldDescriptor.Type.BYTES) {
                return ByteString.copyFrom((byte[]) value);
            }
            if (type == FieldDescriptor.Type.UINT32 || type == FieldDescriptor.Type.FIXED32) {
                long number = ((Long) value).longValue();
                if (number < 0 || number > 0xffffffffL) {
                    throw outOfRange(named, value);
                }
                return Integer.valueOf((int) number);
            }
            if (type == FieldDescriptor.Type.UINT64 || type == FieldDescriptor.Type.FIXED64) {
                BigInteger number = ((BigDecimal) value).toBigInteger();
                if (number.signum() < 0 || number.compareTo(LAST_UINT64) > 0) {
                    throw outOfRange(named, value);
                }
                return Long.valueOf(number.longValue());
            }
            return value;
        }

        private static Message time(FieldDescriptor named, Descriptor message, Timestamp value) throws Misfit {
            long micros = DateTimeUtils.fromJavaTimestamp(value);
            long seconds = Math.floorDiv(micros, MICROS);
            if (seconds < FIRST_SECOND || seconds > LAST_SECOND) {
                throw outOfRange(named, value);
            }
            DynamicMessage.Builder builder = DynamicMessage.newBuilder(message);
            builder.setField(message.findFieldByNumber(1), Long.valueOf(seconds));
            int nanos = (int) Math.floorMod(micros, MICROS) * 1000;
            builder.setField(message.findFieldByNumber(2), Integer.valueOf(nanos));
            return (Message) builder.build();
        }

        private static Misfit outOfRange(FieldDescriptor field, Object value) {
            return new Misfit("the field " + field.getName() + " is " + value + ", which is out of its range");
        }
    }
}
