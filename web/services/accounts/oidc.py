"""Sign-in with OpenID Connect: the authorization code flow with PKCE, at the issuer of the settings."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from config.pricing import FREE_CREDITS
from config.settings import Settings, is_loopback
from engine.lazy import lazy_imports
from storage.database import Database
from storage.tables import identities
from storage.tables.accounts import Role
from web.api.errors import InvalidParameter, SignInRefused, SignInUnavailable
from web.api.fields import RegistrationFields
from web.api.values import API
from web.services.accounts.accounts import has_domain
from web.services.accounts.changes import registration_fields

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

with lazy_imports():
    import httpx
    from authlib.integrations import httpx_client
    from authlib.oidc import core
    from joserfc import errors, jwk, jwt

log = logging.getLogger("convertd.oidc")

CALLBACK_PATH = "/dashboard/oidc/callback"
ATTEMPT_SECONDS = 600
_TIMEOUT = 10.0  # seconds of each request to the issuer
_LEEWAY = 60  # seconds between the clocks
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")


@dataclass(frozen=True)
class Attempt:
    """What the browser keeps in a cookie until the issuer sends it back. The repr omits it."""

    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)

    def to_text(self) -> str:
        """The value of the cookie."""
        return f"{self.state}.{self.nonce}.{self.verifier}"

    @classmethod
    def from_text(cls, text: str) -> Attempt:
        """Reads the value of the cookie. Raises InvalidParameter."""
        parts = text.split(".")
        if len(parts) != 3:
            raise InvalidParameter("This sign-in was not begun here, or too long ago. Begin again.", param="state")
        return cls(*parts)


class OidcSignIn:
    """Signs in people whom the issuer knows. `enabled`: the settings name one."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self.enabled = settings.oidc_issuer is not None
        self._callback = f"{settings.base_url.removesuffix(API)}{CALLBACK_PATH}"

    async def begin(self, attempt: Attempt) -> str:
        """Returns the URL of the issuer at which people sign in. Raises SignInUnavailable."""
        async with self._client() as client:
            metadata = await self._discover(client)
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(url)

    async def complete(self, attempt: Attempt, state: str, code: str) -> str:
        """Exchanges the code, once, for the token of a session of the person's account.

        The account belongs to the identity at the issuer; at its first sign-in, it is found or made by its verified
        email address. Raises InvalidParameter for a wrong state, SignInRefused and SignInUnavailable.
        """
        if not secrets.compare_digest(state.encode(), attempt.state.encode()):
            raise InvalidParameter("This sign-in was not begun here. Begin again.", param="state")
        async with self._client() as client:
            metadata = await self._discover(client)
            claims = await self._claims(client, metadata, attempt, code)
        fields = _verified_fields(claims)
        settings, email = self._settings, None if fields is None else fields.email
        domains = settings.registration_domains
        try:
            return await self._database.run(
                identities.sign_in,
                str(settings.oidc_issuer),
                claims["sub"],
                email,
                "" if fields is None else fields.name,
                may_create=settings.registration == "open" and (not domains or has_domain(email or "", domains)),
                free_credits=FREE_CREDITS,
                role=self._role(claims),
            )
        except identities.NotAllowed as error:
            raise SignInRefused(str(error)) from None

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        """The role by the groups of the person; None if the settings name no group."""
        group = self._settings.oidc_admin_group
        groups = claims.get("groups")
        if group is None:
            return None
        return "admin" if isinstance(groups, list) and group in groups else "member"

    def _client(self) -> AsyncOAuth2Client:
        secret = self._settings.oidc_client_secret
        return httpx_client.AsyncOAuth2Client(
            self._settings.oidc_client_id,
            None if secret is None else secret.get_secret_value(),
            scope="openid email profile",
            redirect_uri=self._callback,
            code_challenge_method="S256",
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            timeout=_TIMEOUT,
        )

    async def _discover(self, client: AsyncOAuth2Client) -> Mapping[str, Any]:
        """Returns the metadata of the issuer, whose endpoints have safe URLs."""
        issuer = str(self._settings.oidc_issuer)
        metadata = await _get(client, f"{issuer}/.well-known/openid-configuration")
        endpoints = [metadata.get(f"{name}_endpoint") for name in ("authorization", "token")]
        if str(metadata.get("issuer")).rstrip("/") != issuer or not all(
            map(_is_safe, [*endpoints, metadata.get("jwks_uri")])
        ):
            log.error("the metadata of the OpenID Connect issuer is not that of %s", issuer)
            raise SignInUnavailable
        return metadata

    async def _claims(
        self, client: AsyncOAuth2Client, metadata: Mapping[str, Any], attempt: Attempt, code: str
    ) -> Mapping[str, Any]:
        """Returns what the issuer asserts about the person, in a token whose signature and purpose are checked."""
        keys = await _get(client, metadata["jwks_uri"])
        try:
            token = await client.fetch_token(
                metadata["token_endpoint"], code=code, code_verifier=attempt.verifier, redirect_uri=self._callback
            )
            decoded = jwt.decode(
                token["id_token"], jwk.KeySet.import_key_set({"keys": keys["keys"]}), algorithms=_ALGORITHMS
            )
            claims = core.CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "value": metadata["issuer"]},
                    "aud": {"essential": True, "value": self._settings.oidc_client_id},
                },
                {"nonce": attempt.nonce, "client_id": self._settings.oidc_client_id},
            )
            claims.validate(leeway=_LEEWAY)
            if not isinstance(claims["sub"], str):
                raise errors.InvalidClaimError("sub")
        except httpx.HTTPError as error:
            raise _unavailable(error) from None
        except (errors.JoseError, KeyError, ValueError, httpx_client.OAuthError) as error:
            log.warning("the OpenID Connect issuer sent no valid token: %s", type(error).__name__)
            raise SignInRefused("The sign-in service did not confirm who you are. Begin again.") from None
        if "email" not in claims and _is_safe(metadata.get("userinfo_endpoint")):
            more = await _get(client, metadata["userinfo_endpoint"])
            return {**more, **claims} if more.get("sub") == claims["sub"] else claims
        return dict(claims)


async def _get(client: AsyncOAuth2Client, url: str) -> Mapping[str, Any]:
    """Returns a JSON object. Raises SignInUnavailable."""
    try:
        response = await client.request("GET", url, withhold_token=client.token is None)
        response.raise_for_status()
        value = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise _unavailable(error) from None
    if not isinstance(value, dict):
        raise SignInUnavailable
    return value


def _unavailable(error: Exception) -> SignInUnavailable:
    log.error("the OpenID Connect issuer cannot be used: %s", type(error).__name__)
    return SignInUnavailable()


def _is_safe(url: object) -> bool:
    """Whether a URL is encrypted, or leads to this machine."""
    parts = urlsplit(str(url or ""))
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    )


def _verified_fields(claims: Mapping[str, Any]) -> RegistrationFields | None:
    """The address of the person, if the issuer has verified it, and the name."""
    if claims.get("email_verified") not in (True, "true"):
        return None
    for name in (str(claims.get("name", "")), ""):
        with suppress(InvalidParameter):
            return registration_fields(str(claims.get("email")), name)
    return None
