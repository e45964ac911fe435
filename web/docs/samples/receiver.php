<?php
// php -S 0.0.0.0:8080 receiver.php
$key = base64_decode(substr(getenv('WEBHOOK_SECRET'), strlen('whsec_')));
$body = file_get_contents('php://input');
$id = $_SERVER['HTTP_WEBHOOK_ID'] ?? '';
$timestamp = $_SERVER['HTTP_WEBHOOK_TIMESTAMP'] ?? '';

$expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
$genuine = false;
foreach (explode(' ', $_SERVER['HTTP_WEBHOOK_SIGNATURE'] ?? '') as $signature) {
    $genuine = hash_equals($expected, $signature) || $genuine;
}
if (!$genuine || abs(time() - (int) $timestamp) > 300) {
    http_response_code(400);
    exit;
}
$message = json_decode($body);
file_put_contents('php://stdout', "$id $message->type " . json_encode($message->data) . "\n");
http_response_code(204);
