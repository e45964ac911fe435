<?php

namespace Convertd;

/** An error of the API, with its message. */
final class ConvertdError extends \RuntimeException
{
    public function __construct(string $message, public readonly string $error, public readonly int $status)
    {
        parent::__construct($message);
    }
}

/** Converts files: uploads them, repeats what may succeed later, and waits for jobs. Needs the extension curl only. */
final class Converter
{
    /** The URL is that of the API, such as https://convertd.example/api/v1. */
    public function __construct(private string $url, private string $apiKey, private int $attempts = 5)
    {
    }

    /**
     * Returns the bytes of the result. All attempts are charged once. In the background, the conversion is a job: for
     * files that take longer than one request may. Throws ConvertdError.
     *
     * @param array<string, mixed> $options those of conversions; values that are no strings are sent as JSON
     */
    public function convert(string $path, string $format, array $options = [], bool $background = false): string
    {
        $form = ['file' => new \CURLFile($path), 'output_format' => $format];
        foreach ($options as $name => $value) {
            $form[$name] = is_string($value) || $value instanceof \CURLFile ? $value : json_encode($value);
        }
        $headers = ['Idempotency-Key: ' . bin2hex(random_bytes(16))];
        [$status, $body] = $this->send('/convert', $background ? [...$headers, 'Prefer: respond-async'] : $headers, $form);
        if ($status !== 202) {
            return $body;
        }
        $job = json_decode($body, true)['data'];
        while (in_array($job['status'], ['queued', 'processing'], true)) {
            [, $body] = $this->send("/jobs/{$job['job_id']}", ['Prefer: wait=50']);
            $job = json_decode($body, true)['data'];
        }
        if ($job['status'] !== 'completed') {
            $error = $job['error'] ?? ['message' => 'The job was cancelled.', 'code' => $job['status']];
            throw new ConvertdError($error['message'], $error['code'], 200);
        }
        return $this->send("/files/{$job['result']['file_id']}/download")[1];
    }

    /**
     * Sends a request, again if that may help: after as long as the server asks for, or else a second, two, four …
     *
     * @return array{int, string} the status and the body
     */
    private function send(string $path, array $headers = [], ?array $form = null): array
    {
        for ($attempt = 1; ; $attempt++) {
            $asked = 0;
            $request = curl_init($this->url . $path);
            curl_setopt_array($request, [
                CURLOPT_HTTPHEADER => ["Authorization: Bearer $this->apiKey", ...$headers],
                CURLOPT_RETURNTRANSFER => true,
                CURLOPT_HEADERFUNCTION => function ($request, string $line) use (&$asked): int {
                    $asked = preg_match('/^Retry-After: *(\d+)/i', $line, $found) ? (int) $found[1] : $asked;
                    return strlen($line);
                },
            ] + ($form === null ? [] : [CURLOPT_POSTFIELDS => $form]));
            $body = curl_exec($request);
            $status = curl_getinfo($request, CURLINFO_RESPONSE_CODE);
            if ($body !== false && $status < 300) {
                return [$status, $body];
            }
            $error = $body === false ? [] : json_decode($body, true)['error'] ?? [];
            $retryable = $error['retryable'] ?? ($body === false || in_array($status, [429, 502, 503, 504], true));
            if ($attempt >= $this->attempts || !$retryable || $asked > 60) {
                $message = $error['message'] ?? (curl_error($request) ?: "Status $status");
                throw new ConvertdError($message, $error['code'] ?? 'unknown', $status);
            }
            usleep((int) (1e6 * max($asked, 2 ** ($attempt - 1) * random_int(50, 100) / 100)));
        }
    }
}
