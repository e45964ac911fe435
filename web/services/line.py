"""Who is next: accounts take turns, each sends its own in the order they came, and memory must suffice."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Place:
    """One that waits, and runs once it has `begun`. `memory` is in bytes, times in seconds of one clock."""

    account_id: str
    memory: int
    since: float
    begun: float | None = None


@dataclass
class _Account:
    limit: int
    running: int = 0
    waiting: dict[Place, None] = field(default_factory=dict)  # an ordered set


class Line:
    """At most `slots` places run at a time, in `memory` bytes together.

    Accounts stand in the order of their latest turns. The next place is the first of the account that stands foremost
    of those which have somebody waiting and run fewer than they may. If it does not fit in the memory that is left,
    all wait with it: nobody small passes somebody large. A place larger than all memory runs alone.
    """

    def __init__(self, slots: int, memory: float) -> None:
        self.running = 0
        self.waiting = 0
        self._slots = slots
        self._memory = memory
        self._taken = 0  # bytes
        self._accounts: dict[str, _Account] = {}  # those with a place; a turn moves one to the end

    def enter(self, place: Place, limit: int) -> None:
        """Waits behind the others of its account, which may have `limit` places running."""
        account = self._accounts.setdefault(place.account_id, _Account(limit))
        account.limit = limit
        account.waiting[place] = None
        self.waiting += 1

    def leave(self, place: Place) -> None:
        """Waits or runs no more."""
        account = self._accounts[place.account_id]
        if place.begun is None:
            del account.waiting[place]
            self.waiting -= 1
        else:
            account.running -= 1
            self.running -= 1
            self._taken -= place.memory
        if not (account.running or account.waiting):
            del self._accounts[place.account_id]

    def call(self, now: float) -> list[Place]:
        """Lets all run that may, and gives them."""
        called = []
        while (place := self._next()) is not None:
            account = self._accounts[place.account_id] = self._accounts.pop(place.account_id)
            del account.waiting[place]
            account.running += 1
            self.waiting -= 1
            self.running += 1
            self._taken += place.memory
            place.begun = now
            called.append(place)
        return called

    def rounds(self, account_id: str, limit: int) -> float:
        """How many jobs one after the other it takes until a newcomer of this account has its turn."""
        ahead = {name: len(account.waiting) for name, account in self._accounts.items()}
        own = 1 + ahead.pop(account_id, 0)
        # While the account takes that many turns, each of the others takes no more.
        all_told = own + sum(min(others, own) for others in ahead.values())
        return max(all_told / self._slots, own / limit)

    def oldest(self) -> float | None:
        """Since when the one has waited that has waited longest."""
        firsts = (next(iter(account.waiting)) for account in self._accounts.values() if account.waiting)
        return min((place.since for place in firsts), default=None)

    def _next(self) -> Place | None:
        if self.running == self._slots:
            return None
        for account in self._accounts.values():
            if account.waiting and account.running < account.limit:
                place = next(iter(account.waiting))
                return place if self._fits(place) else None
        return None

    def _fits(self, place: Place) -> bool:
        return not self.running or self._taken + place.memory <= self._memory
