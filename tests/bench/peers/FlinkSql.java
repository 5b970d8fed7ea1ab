import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;

/** One job of a file of SQL statements: those that insert run together. Arguments: its name, the file. */
public class FlinkSql {
    public static void main(String[] arguments) throws Exception {
        TableEnvironment environment = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        environment.getConfig().set("pipeline.name", arguments[0]);
        StatementSet inserts = environment.createStatementSet();
        for (String statement : Files.readString(Path.of(arguments[1])).split(";\\s*\n")) {
            if (statement.startsWith("INSERT")) {
                inserts.addInsertSql(statement);
            } else if (statement.startsWith("SET")) {
                String[] setting = statement.substring(3).split("=", 2);
                environment.getConfig().set(unquoted(setting[0]), unquoted(setting[1]));
            } else if (!statement.isBlank()) {
                environment.executeSql(statement);
            }
        }
        inserts.execute();
    }

    private static String unquoted(String text) {
        return text.strip().replaceAll("^'|'$", "");
    }
}
