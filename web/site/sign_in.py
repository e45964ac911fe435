"""Sessions of the dashboard, opened with an API key or with a link that is sent by email."""

from storage.errors import InvalidKey
from storage.errors import NotFound as UnknownToken
from web.api.errors import ApiError, InvalidParameter, NotFound, SignInRefused
from web.api.field_types import validate
from web.api.fields import EmailFields, VerificationQuery
from web.http.authorization import SESSION_COOKIE
from web.services.accounts.accounts import SESSION_LIFETIME
from web.services.accounts.oidc import ATTEMPT_SECONDS, CALLBACK_PATH, Attempt
from web.site.pages import SIGN_IN_PATH, PageHandler

_ATTEMPT_COOKIE = "convertd_oidc"  # from the start of a sign-in to its end


class Session(PageHandler):
    """Signs in with an API key, and out."""

    access = "form"

    async def post(self, action: str) -> None:
        if action == "sign-out":
            await self.services.accounts.sign_out(self.get_cookie(SESSION_COOKIE, ""))
            self.clear_cookie(SESSION_COOKIE, path=f"{self.base_path}/")
            return self.redirect("/", status=303)
        try:
            form = self.input.web_form()
            token = await self.services.accounts.sign_in(form.get("key", "").strip())
        except InvalidKey as error:
            await self.authorization.count_failed_login()
            return self.write_sign_in_page(error)
        except ApiError as error:
            return self.write_sign_in_page(error)
        return _begin(self, token, "/" if form.get("next") == "/" else SIGN_IN_PATH)


class SignInEmail(PageHandler):
    """Sends a link to sign in. The response is the same whether or not the address has an account."""

    access = "form"

    async def post(self) -> None:
        try:
            email = validate(EmailFields, self.input.web_form()).email
            await self.services.registrations.request_sign_in(email, self.authorization.address, self.language)
        except ApiError as error:
            return self.write_sign_in_page(error)
        return self.write_sign_in_page(sent=True)


class SignInLink(PageHandler):
    """The page that a link leads to, with a button that uses its token: programs that check emails only open links."""

    access = "form"

    async def get(self) -> None:
        self.write_page("sign_in_link.html")

    async def post(self) -> None:
        try:
            token = validate(VerificationQuery, self.input.web_form()).token
            session = await self.services.registrations.sign_in(token)
        except (InvalidParameter, UnknownToken):
            await self.authorization.count_failed_login()
            return self.write_sign_in_page(NotFound("This link has been used, or has expired. Ask for another one."))
        return _begin(self, session)


class OidcStart(PageHandler):
    """Leads to the sign-in service."""

    access = "form"

    async def get(self) -> None:
        if not self.services.oidc.enabled:
            raise NotFound("No such page.")
        attempt = Attempt()
        try:
            url = await self.services.oidc.begin(attempt)
        except ApiError as error:
            return self.write_sign_in_page(error)
        self.set_private_cookie(_ATTEMPT_COOKIE, attempt.to_text(), ATTEMPT_SECONDS, path=CALLBACK_PATH, samesite="Lax")
        return self.redirect(url, status=303)


class OidcCallback(PageHandler):
    """Where the sign-in service sends people back to."""

    access = "form"

    async def get(self) -> None:
        self.set_header("Referrer-Policy", "no-referrer")
        if not self.services.oidc.enabled:
            raise NotFound("No such page.")
        attempt = self.get_cookie(_ATTEMPT_COOKIE, "")
        self.clear_cookie(_ATTEMPT_COOKIE, path=self.base_path + CALLBACK_PATH)
        state, code = (self.get_query_argument(name, "") for name in ("state", "code"))
        try:
            if not code:
                raise SignInRefused("The sign-in service did not let you in.")
            session = await self.services.oidc.complete(Attempt.from_text(attempt or ""), state, code)
        except ApiError as error:
            await self.authorization.count_failed_login()
            return self.write_sign_in_page(error)
        return _begin(self, session)


def _begin(page: PageHandler, token: str, place: str = SIGN_IN_PATH) -> None:
    page.set_private_cookie(SESSION_COOKIE, token, SESSION_LIFETIME, path="/", samesite="Lax")
    page.redirect(place, status=303)
