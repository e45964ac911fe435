"""Receives webhooks, and prints the genuine ones."""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer

from convertd_client import InvalidWebhook, verify_webhook


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            message = verify_webhook(body, self.headers, os.environ["WEBHOOK_SECRET"])
        except InvalidWebhook:
            status = 400
        else:
            status = 204
            print(message.id, message.type, message.data, flush=True)
        self.send_response(status)
        self.end_headers()


HTTPServer(("", int(os.environ.get("PORT", 8080))), Receiver).serve_forever()
