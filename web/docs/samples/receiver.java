import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Receiver {
    static boolean isGenuine(byte[] key, String id, String timestamp, String signatures, byte[] body) throws Exception {
        if (id == null || timestamp == null || signatures == null || !timestamp.matches("[0-9]{1,12}")) return false;
        if (Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(timestamp)) > 300) return false;
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes();
        boolean genuine = false;
        for (String signature : signatures.split(" ")) {
            genuine |= MessageDigest.isEqual(signature.getBytes(), expected);
        }
        return genuine;
    }

    public static void main(String[] arguments) throws Exception {
        byte[] key = Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").replace("whsec_", ""));
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8080"));
        HttpServer server = HttpServer.create(new InetSocketAddress(port), 0);
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            var headers = exchange.getRequestHeaders();
            String id = headers.getFirst("webhook-id");
            boolean genuine = false;
            String timestamp = headers.getFirst("webhook-timestamp");
            try {
                genuine = isGenuine(key, id, timestamp, headers.getFirst("webhook-signature"), body);
            } catch (Exception error) {
                error.printStackTrace();
            }
            if (genuine) {
                String message = new String(body, StandardCharsets.UTF_8);
                Matcher type = Pattern.compile("\"type\"\\s*:\\s*\"([^\"]*)").matcher(message); // or a library for JSON
                System.out.println(id + " " + (type.find() ? type.group(1) : "") + " " + message);
            }
            exchange.sendResponseHeaders(genuine ? 204 : 400, -1);
            exchange.close();
        });
        server.start();
    }
}
