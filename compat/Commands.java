import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools, one after the other, so that Java starts once.
 *
 * <p>Each line of the input is a main class, its arguments, and what it reads, with tabs between; a
 * line feed in the last is written as `\n`. The output of each ends with a line of `EOT` and its
 * exit code.
 */
final class Commands {
    /** What a tool that exits throws; no tool catches it. */
    private static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super("ended", null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        List<Runnable> hooks = new ArrayList<>();
        Exit.setExitProcedure((code, message) -> {
            throw new Ended(code);
        });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] parts = line.split("\t", -1);
            String read = parts[parts.length - 1].replace("\\n", "\n");
            System.setIn(new ByteArrayInputStream(read.getBytes()));
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true));
            System.setErr(System.out);
            int code = run(parts[0], Arrays.copyOfRange(parts, 1, parts.length - 1));
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.out.flush();
            printed.writeTo(answers);
            answers.println("\nEOT " + code);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Ended ended) {
                return ended.code;
            }
            error.getCause().printStackTrace();
            return 1;
        }
        return 0;
    }
}
