import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;

/** Flink SQL, exactly once, in a cluster within this JVM. Arguments: port, Kafka's address. */
public final class FlinkPeer {
    private static final String RAW = "'value.format' = 'raw'";
    private static final String JSON = "'value.format' = 'json'";
    private static final String TUNED =
            ", 'properties.linger.ms' = '20', 'properties.batch.size' = '262144',"
                    + " 'properties.compression.type' = 'lz4'";

    public static void main(String[] args) throws Exception {
        Turns.serve(Integer.parseInt(args[0]), turn -> run(turn, args[1]));
        System.exit(0);
    }

    private static void run(Turns.Turn turn, String bootstrap) throws Exception {
        var settings = new Configuration();
        settings.setString("parallelism.default", "2");
        settings.setString("execution.checkpointing.interval", "1 s");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("restart-strategy.type", "none");
        var tables =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().withConfiguration(settings).build());
        var statements = tables.createStatementSet();
        switch (turn.kind()) {
            case "copy", "fan_out" -> {
                source(tables, turn, bootstrap, "v BYTES", RAW);
                var suffixes =
                        turn.kind().equals("copy") ? new String[] {""} : new String[] {".a", ".b", ".c"};
                for (String suffix : suffixes) {
                    target(tables, turn.target() + suffix, bootstrap, "v BYTES", RAW);
                    insert(statements, turn.target() + suffix, "SELECT k, v FROM source");
                }
            }
            case "json" -> {
                var order = "order_id BIGINT, customer STRING, amount DOUBLE";
                source(tables, turn, bootstrap, order + ", status STRING", JSON);
                target(tables, turn.target(), bootstrap, order + ", gross DOUBLE", JSON);
                insert(
                        statements,
                        turn.target(),
                        "SELECT k, order_id, customer, amount, amount * 1.19 FROM source"
                                + " WHERE status <> 'open'");
            }
            default -> throw new IllegalArgumentException(turn.kind());
        }
        var running = statements.execute();
        if (turn.isEndless()) {
            turn.await(() -> 0);
            running.getJobClient().orElseThrow().cancel().get();
        } else {
            running.await(); // the source is bounded, and its last checkpoint commits the rest
        }
    }

    private static void source(
            TableEnvironment tables, Turns.Turn turn, String bootstrap, String columns, String format) {
        var end = turn.isEndless() ? "" : ", 'scan.bounded.mode' = 'latest-offset'";
        var options =
                ", 'properties.group.id' = '%s', 'scan.startup.mode' = 'earliest-offset',"
                        + " 'properties.isolation.level' = 'read_committed'" + end;
        table(tables, "source", turn.source(), bootstrap, columns, format, options.formatted(turn.target()));
    }

    private static void target(
            TableEnvironment tables, String topic, String bootstrap, String columns, String format) {
        var options =
                ", 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '%s',"
                        + " 'properties.transaction.timeout.ms' = '600000'";
        table(tables, topic, topic, bootstrap, columns, format, options.formatted(topic) + TUNED);
    }

    private static void table(
            TableEnvironment tables,
            String name,
            String topic,
            String bootstrap,
            String columns,
            String format,
            String options) {
        tables.executeSql(
                "CREATE TABLE `" + name + "` (k BYTES, " + columns + ") WITH ('connector' = 'kafka',"
                        + " 'topic' = '" + topic + "', 'properties.bootstrap.servers' = '" + bootstrap + "',"
                        + " 'key.format' = 'raw', 'key.fields' = 'k',"
                        + " 'value.fields-include' = 'EXCEPT_KEY', " + format + options + ")");
    }

    private static void insert(StatementSet statements, String table, String query) {
        statements.addInsertSql("INSERT INTO `" + table + "` " + query);
    }
}
