import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;

/**
 * Prints for each expression in which of the names it is found, as ones and zeros, or that it is none.
 *
 * <p>The expressions are the lines of the first file, and the names those of the second.
 */
final class Patterns {
    public static void main(String[] arguments) throws Exception {
        List<String> names = Files.readAllLines(Path.of(arguments[1]));
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println(found(line, names));
        }
    }

    private static String found(String expression, List<String> names) {
        StringBuilder found = new StringBuilder();
        try {
            Pattern pattern = Pattern.compile(expression.trim());
            for (String name : names) {
                found.append(pattern.matcher(name).find() ? '1' : '0');
            }
        } catch (RuntimeException | StackOverflowError error) {
            return "none";
        }
        return found.toString();
    }
}
