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
        if ($response === false) {
            $message = curl_error($curl);
            sleep($wait);
            continue;
        }
        if (curl_getinfo($curl, CURLINFO_HTTP_CODE) === 200) {
            file_put_contents(substr($photo, 0, -5) . '.jpg', $response);
            return null;
        }
        $error = json_decode($response)->error;
        $message = "$error->code: $error->message ($error->request_id)";
        if (!$error->retryable) {
            break;
        }
        sleep($wait);
    }
    return "$photo: $message\n";
}

$failed = '';
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator('photos')) as $file) {
    if ($file->getExtension() === 'heic') {
        $failed .= convert($file->getPathname());
    }
}
fwrite(STDERR, $failed);
exit($failed === '' ? 0 : 1);
