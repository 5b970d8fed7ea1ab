package sluice;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.util.TaskCompletionListener;

/**
 * How many records the tasks that run in this JVM have read.
 *
 * The heartbeats of executors tell it to a driver. A driver that does the work itself gets no counts by
 * heartbeats: Spark finds the names of the counters only where it has read their bytes.
 */
public class RunningTasks implements SparkPlugin, ExecutorPlugin, TaskCompletionListener {
    private static final Map TASKS = new ConcurrentHashMap();

    public DriverPlugin driverPlugin() {
        return null;
    }

    public ExecutorPlugin executorPlugin() {
        return this;
    }

    public void onTaskStart() {
        TaskContext task = TaskContext.get();
        TASKS.put(Long.valueOf(task.taskAttemptId()), task);
        task.addTaskCompletionListener(this);
    }

    public void onTaskCompletion(TaskContext task) {
        TASKS.remove(Long.valueOf(task.taskAttemptId()));
    }

    /** Return how many records a task has read; 0 if it does not run here. */
    public static long read(long number) {
        TaskContext task = (TaskContext) TASKS.get(Long.valueOf(number));
        return task == null ? 0 : task.taskMetrics().inputMetrics().recordsRead();
    }
}
