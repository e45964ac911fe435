package convertd;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/** Converts files: uploads them, repeats what may succeed later, and waits for jobs. All attempts are charged once. */
public final class Converter {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int ATTEMPTS = 5;
  private static final int MAX_WAIT = 60; // seconds

  private final HttpClient http = HttpClient.newHttpClient();
  private final String url;
  private final String apiKey;

  /** An error of the API, with its message. */
  public static final class ConvertdError extends IOException {
    public final int status;
    public final String code;

    ConvertdError(int status, JsonNode error, String code, String message) {
      super(error.path("message").asText(message));
      this.status = status;
      this.code = error.path("code").asText(code);
    }
  }

  /** The URL is that of the API, such as https://convertd.example/api/v1. */
  public Converter(String url, String apiKey) {
    this.url = url;
    this.apiKey = apiKey;
  }

  /**
   * Returns the bytes of the result. Options that are no strings are sent as JSON. In the background, the conversion is
   * a job: for files that take longer than one request may.
   */
  public byte[] convert(Path file, String format, Map<String, ?> options, boolean background)
      throws IOException, InterruptedException {
    String boundary = UUID.randomUUID().toString();
    ByteArrayOutputStream form = new ByteArrayOutputStream();
    String name = file.getFileName().toString().replace("\"", "%22");
    addPart(form, boundary, "name=\"file\"; filename=\"" + name + "\"", Files.readAllBytes(file));
    addPart(form, boundary, "name=\"output_format\"", format.getBytes(StandardCharsets.UTF_8));
    for (Map.Entry<String, ?> option : options.entrySet()) {
      Object value = option.getValue();
      byte[] content = value instanceof String text ? text.getBytes(StandardCharsets.UTF_8) : JSON.writeValueAsBytes(value);
      addPart(form, boundary, "name=\"" + option.getKey() + "\"", content);
    }
    form.write(("--" + boundary + "--\r\n").getBytes(StandardCharsets.UTF_8));
    HttpRequest.Builder request =
        request("/convert")
            .header("Content-Type", "multipart/form-data; boundary=" + boundary)
            .header("Idempotency-Key", boundary)
            .POST(HttpRequest.BodyPublishers.ofByteArray(form.toByteArray()));
    HttpResponse<byte[]> response = send(background ? request.header("Prefer", "respond-async") : request);
    if (response.statusCode() != 202) {
      return response.body();
    }
    JsonNode job = JSON.readTree(response.body()).get("data");
    while (Set.of("queued", "processing").contains(job.get("status").asText())) {
      HttpRequest.Builder wait = request("/jobs/" + job.get("job_id").asText()).header("Prefer", "wait=50");
      job = JSON.readTree(send(wait).body()).get("data");
    }
    if (!job.get("status").asText().equals("completed")) {
      throw new ConvertdError(200, job.path("error"), job.get("status").asText(), "The job was cancelled.");
    }
    return send(request("/files/" + job.get("result").get("file_id").asText() + "/download")).body();
  }

  private static void addPart(ByteArrayOutputStream form, String boundary, String parameters, byte[] content)
      throws IOException {
    String head = "--" + boundary + "\r\nContent-Disposition: form-data; " + parameters + "\r\n\r\n";
    form.write(head.getBytes(StandardCharsets.UTF_8));
    form.write(content);
    form.write("\r\n".getBytes(StandardCharsets.UTF_8));
  }

  private HttpRequest.Builder request(String path) {
    return HttpRequest.newBuilder(URI.create(url + path)).header("Authorization", "Bearer " + apiKey);
  }

  /** Sends a request, again if that may help: after as long as the server asks for, or else a second, two, four … */
  private HttpResponse<byte[]> send(HttpRequest.Builder request) throws IOException, InterruptedException {
    for (int attempt = 1; ; attempt++) {
      long asked = 0;
      try {
        HttpResponse<byte[]> response = http.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
        if (response.statusCode() < 300) {
          return response;
        }
        String after = response.headers().firstValue("Retry-After").orElse("");
        asked = after.matches("[0-9]{1,9}") ? Long.parseLong(after) : 0; // of other servers, it can be a date
        JsonNode error = errorOf(response.body());
        boolean temporary = Set.of(429, 502, 503, 504).contains(response.statusCode());
        if (attempt >= ATTEMPTS || !error.path("retryable").asBoolean(temporary) || asked > MAX_WAIT) {
          throw new ConvertdError(response.statusCode(), error, "unknown", "Status " + response.statusCode());
        }
      } catch (ConvertdError refused) {
        throw refused;
      } catch (IOException lost) {
        if (attempt >= ATTEMPTS) {
          throw lost;
        }
      }
      double seconds = (1 << (attempt - 1)) * (0.5 + Math.random() / 2);
      Thread.sleep((long) (1000 * Math.max(seconds, asked)));
    }
  }

  private static JsonNode errorOf(byte[] body) {
    try {
      return JSON.readTree(body).path("error");
    } catch (IOException noJson) {
      return JSON.createObjectNode();
    }
  }
}
