"""Who sits at the dashboard, by the token that the browser keeps."""

from __future__ import annotations

from storage import sessions
from storage.database import Database
from storage.keys import parse_key
from web.errors import KeyNotVerified
from web.services.accounts import Account, known

LIFETIME = sessions.LIFETIME  # seconds


class Sessions:
    """Begins with a key, and ends when it is told to, after LIFETIME, or with the key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, key: str) -> str:
        """The token of a new session. Raises InvalidKey or KeyNotVerified."""
        token, account = await self._database.run(sessions.begin, parse_key(key))
        if account.verified_at is None:
            await self.end(token)
            raise KeyNotVerified("The account's e-mail address is not verified: open the link in the mail.")
        return token

    async def account(self, token: str) -> Account:
        """Whose session it is. Raises InvalidKey."""
        return known(*await self._database.run(sessions.find, token))

    async def end(self, token: str) -> None:
        """Ends the session, if there is one."""
        await self._database.run(sessions.end, token)
