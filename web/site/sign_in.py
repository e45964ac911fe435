"""Sessions of the dashboard, opened with an API key or with a link that is sent by email."""

from storage.errors import InvalidKey
from storage.errors import NotFound as UnknownToken
from web.api.errors import ApiError, InvalidParameter, NotFound
from web.api.field_types import validate
from web.api.fields import EmailFields, VerificationQuery
from web.http.authorization import SESSION_COOKIE
from web.services.accounts.accounts import SESSION_LIFETIME
from web.site.pages import SIGN_IN_PATH, PageHandler


class Session(PageHandler):
    """Signs in with an API key, and out."""

    access = "form"

    async def post(self, action: str) -> None:
        if action == "sign-out":
            await self.services.accounts.sign_out(self.get_cookie(SESSION_COOKIE, ""))
            self.clear_cookie(SESSION_COOKIE)
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
            await self.services.registrations.request_sign_in(email, self.authorization.address)
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


def _begin(page: PageHandler, token: str, place: str = SIGN_IN_PATH) -> None:
    page.set_private_cookie(SESSION_COOKIE, token, SESSION_LIFETIME, path="/", samesite="Lax")
    page.redirect(place, status=303)
