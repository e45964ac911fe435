<?php
const WAITS = [1, 2, 4, 8, 16, 0]; // seconds after each attempt

// Writes a JPEG beside the photo, or returns what is wrong. What fails for a while is repeated under the same
// idempotency key, so that it is charged once.
function convert(string $photo): ?string
{
    $headers = [
        'Authorization: Bearer ' . getenv('CONVERTD_API_KEY'),
        'Idempotency-Key: ' . bin2hex(random_bytes(16)),
    ];
    foreach (WAITS as $wait) {
        $curl = curl_init('{url}/convert');
        curl_setopt_array($curl, [
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_TIMEOUT => 300,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_POSTFIELDS => ['file' => new CURLFile($photo), 'output_format' => 'jpeg'],
            CURLOPT_HEADERFUNCTION => function ($curl, $line) use (&$wait) {
                if (stripos($line, 'Retry-After:') === 0) {
                    $wait = (int) substr($line, 12);
                }
                return strlen($line);
            },
        ]);
        $response = curl_exec($curl);
        $status = curl_getinfo($curl, CURLINFO_HTTP_CODE);
        if ($response !== false && $status === 200) {
            file_put_contents(substr($photo, 0, -5) . '.jpg', $response);
            return null;
        }
        $message = curl_error($curl) ?: "status $status";
        $error = json_decode((string) $response)?->error; // null without a connection, or if a proxy responds
        if ($error !== null) {
            $message = "$error->code: $error->message ($error->request_id)";
        }
        if ($error?->retryable === false) {
            break;
        }
        sleep($wait);
    }
    return "$photo: $message\n";
}

$failed = '';
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator('photos')) as $file) {
    if (strtolower($file->getExtension()) === 'heic') {
        $failed .= convert($file->getPathname());
    }
}
fwrite(STDERR, $failed);
exit($failed === '' ? 0 : 1);
