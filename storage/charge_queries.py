"""The queries that every chargeable request makes."""

from __future__ import annotations

from peewee import BaseQuery

from storage import models
from storage.prepared import Given, Prepared, insertion


def _set_aside(given: Given) -> BaseQuery:
    table, amount = models.Account, given("amount")
    taken = table.update({table.balance: table.balance - amount, table.held: table.held + amount})
    return taken.where((table.id == given("account")) & (table.balance >= amount)).returning(table.balance)


def _charge(given: Given) -> BaseQuery:
    table, amount = models.Account, given("amount")
    charged = table.update({table.held: table.held - amount, table.used: table.used + amount})
    return charged.where(table.id == given("account")).returning(table.balance)


def _resolution(given: Given) -> BaseQuery:
    table = models.Hold
    held = (table.id == given("hold")) & (table.account == given("account")) & (table.state == "held")
    return table.update({table.state: given("state")}).where(held).returning(table.amount)


SET_ASIDE = Prepared(_set_aside)
"""Takes `amount` from what the `account` may spend, and holds it, if there is as much; gives what is left."""

RESOLVE = Prepared(_resolution)
"""Ends a `hold` of the `account` in this `state`, if it is still held; gives its amount."""

CHARGE = Prepared(_charge)
"""Uses up `amount` of what is held of the `account`; gives what it may spend."""

ADD_HOLD, ADD_ENTRY, ADD_USE = insertion(models.Hold), insertion(models.Entry), insertion(models.Usage)
