"""An OpenID Connect issuer on this machine, which lets everybody in as the person whom a test sets."""

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwk, jwt

CLIENT = ("convertd", "secret of the client")


def new_key() -> jwk.RSAKey:
    """A key, all of which have the same id."""
    return jwk.RSAKey.generate_key(2048, {"kid": "one"})


@dataclass
class Issuer:
    """The issuer at `url`. `person` are the claims of whoever signs in; `changes` replace claims of the token.

    Tokens are signed by the `signer`, whose `key` is published unless a test replaces it.
    """

    url: str
    person: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    key: jwk.RSAKey = field(default_factory=new_key)
    signer: jwk.RSAKey = field(init=False)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.signer = self.key

    def settings(self) -> dict[str, Any]:
        """The settings of a server that people sign in to here."""
        return {"oidc_issuer": self.url, "oidc_client_id": CLIENT[0], "oidc_client_secret": CLIENT[1]}

    def metadata(self) -> dict[str, str]:
        endpoints = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")}
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **endpoints}

    def authorize(self, query: dict[str, str]) -> str:
        """Returns where the browser is sent back to."""
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = f"code{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """Exchanges a code, once, for a client with its secret and for who began the sign-in."""
        asked = self.codes.pop(form["code"], None)
        digest = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if asked is None or digest != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return None
        if b64decode(authorization.removeprefix("Basic ")).decode().split(":")[0] != CLIENT[0]:
            return None
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT[0], "iat": now, "exp": now + 60, "nonce": asked["nonce"]}
        signed = jwt.encode({"alg": "RS256", "kid": "one"}, {**claims, **self.person, **self.changes}, self.signer)
        return {"access_token": "token", "token_type": "Bearer", "id_token": signed}


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """An issuer on a free port."""
    issuer = Issuer("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/authorization":
                self.send_response(303)
                self.send_header(
                    "Location", issuer.authorize({name: one for name, (one,) in parse_qs(url.query).items()})
                )
                self.end_headers()
            elif url.path == "/keys":
                self._send({"keys": [issuer.key.as_dict(private=False)]})
            else:
                self._send(issuer.metadata())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: one for name, (one,) in parse_qs(body).items()}
            answer = issuer.token(form, self.headers.get("Authorization", ""))
            self._send(answer or {"error": "invalid_grant"}, 200 if answer else 400)

        def _send(self, value: object, status: int = 200) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()
