import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.Socket;
import java.util.function.LongSupplier;

/**
 * Reads the benchmark's turns from a socket, one line each, and answers each with a line.
 *
 * <p>A line has the kind of work, the source topic, the target topic and the number of records. With
 * 0 records the turn lasts until the next line.
 */
final class Turns {
    private static final long POLL_MS = 2;

    interface Peer {
        void run(Turn turn) throws Exception;
    }

    record Turn(String kind, String source, String target, long records, BufferedReader lines) {
        boolean isEndless() {
            return records == 0;
        }

        /** Return when all records were processed, or when the benchmark ends an endless turn. */
        void await(LongSupplier processed) throws IOException, InterruptedException {
            if (isEndless()) {
                lines.readLine();
            }
            while (processed.getAsLong() < records) {
                Thread.sleep(POLL_MS);
            }
        }
    }

    private Turns() {}

    static void serve(int port, Peer peer) throws Exception {
        try (var socket = new Socket(InetAddress.getLoopbackAddress(), port);
                var lines = new BufferedReader(new InputStreamReader(socket.getInputStream()));
                var answers = new PrintStream(socket.getOutputStream(), true)) {
            answers.println("ready");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                peer.run(new Turn(words[0], words[1], words[2], Long.parseLong(words[3]), lines));
                answers.println("done");
            }
        }
    }
}
