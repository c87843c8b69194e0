import static org.apache.kafka.streams.CloseOptions.GroupMembershipOperation.LEAVE_GROUP;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Properties;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** Kafka Streams, exactly once, two threads. Arguments: port, Kafka's address, a folder. */
public final class KafkaStreamsPeer {
    /** The columns that the query reads; Jackson skips the others. */
    public record Order(long order_id, String customer, double amount, String status) {}

    public record Taxed(long order_id, String customer, double amount, double gross) {}

    private static final Serde<byte[]> BYTES = Serdes.ByteArray();
    private static final ObjectMapper JSON =
            new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    private static final ObjectReader ORDERS = JSON.readerFor(Order.class);
    private static final ObjectWriter TAXED = JSON.writerFor(Taxed.class);

    public static void main(String[] args) throws Exception {
        Turns.serve(Integer.parseInt(args[0]), turn -> run(turn, args[1], args[2]));
        System.exit(0);
    }

    private static void run(Turns.Turn turn, String bootstrap, String folder) throws Exception {
        var settings = new Properties();
        settings.put("application.id", turn.target());
        settings.put("bootstrap.servers", bootstrap);
        settings.put("state.dir", folder);
        settings.put("auto.offset.reset", "earliest");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", "2");
        // 100 ms is the default: for latency. A backlog is read faster with fewer commits.
        settings.put("commit.interval.ms", turn.isEndless() ? "100" : "1000");
        settings.put("consumer.max.poll.records", "10000");
        settings.put("buffered.records.per.partition", "10000");
        settings.put("producer.linger.ms", turn.isEndless() ? "5" : "20");
        settings.put("producer.batch.size", "262144");
        settings.put("producer.compression.type", "lz4");

        var read = new LongAdder();
        var streams = new KafkaStreams(topology(turn, read).build(), settings);
        streams.start();
        turn.await(() -> settled(streams.state()) ? read.sum() : 0);
        // Closing commits. A thread that does not leave the group may keep the other one waiting for
        // a rebalance until its session ends.
        streams.close(CloseOptions.groupMembershipOperation(LEAVE_GROUP));
    }

    /** Return whether no rebalance is running, so that all threads end at once. */
    private static boolean settled(KafkaStreams.State state) {
        if (state == KafkaStreams.State.ERROR) {
            throw new IllegalStateException("Kafka Streams stopped, for the reason above");
        }
        return state == KafkaStreams.State.RUNNING;
    }

    private static StreamsBuilder topology(Turns.Turn turn, LongAdder read) {
        var builder = new StreamsBuilder();
        var bytes = Produced.with(BYTES, BYTES);
        var records =
                builder.stream(turn.source(), Consumed.with(BYTES, BYTES))
                        .peek((key, value) -> read.increment());
        switch (turn.kind()) {
            case "copy" -> records.to(turn.target(), bytes);
            case "fan_out" -> {
                for (String suffix : new String[] {".a", ".b", ".c"}) {
                    records.to(turn.target() + suffix, bytes);
                }
            }
            case "json" ->
                    records.mapValues(KafkaStreamsPeer::order)
                            .filter((key, order) -> !order.status().equals("open"))
                            .mapValues(KafkaStreamsPeer::taxed)
                            .to(turn.target(), bytes);
            default -> throw new IllegalArgumentException(turn.kind());
        }
        return builder;
    }

    private static Order order(byte[] value) {
        try {
            return ORDERS.readValue(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] taxed(Order order) {
        var gross = order.amount() * 1.19;
        try {
            return TAXED.writeValueAsBytes(
                    new Taxed(order.order_id(), order.customer(), order.amount(), gross));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
