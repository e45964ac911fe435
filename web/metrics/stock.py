"""What is kept: accounts, credits, files, and the room that is left for them. Looked up every half minute."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from storage.stock import Stock


class StockMetrics:
    """Told of what upkeep finds in the database and on the disk."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._accounts = Gauge("convertd_accounts", "Accounts.", ("tier",), registry=registry)
        self._held = Gauge("convertd_credits_held", "Credits set aside for operations that run.", registry=registry)
        self._balance = Gauge("convertd_credits_balance", "Credits that accounts have left.", registry=registry)
        self._files = Gauge("convertd_files_stored", "Files that are kept.", ("state",), registry=registry)
        self._bytes = Gauge("convertd_storage_bytes", "The size of all files that are kept.", registry=registry)
        self._free = Gauge("convertd_disk_free_bytes", "What is free on the data folder's disk.", registry=registry)
        self._updated = Gauge(
            "convertd_stock_updated_timestamp_seconds", "When these were last looked up.", registry=registry
        )
        for tier in ("free", "paid"):
            self._accounts.labels(tier)
        for state in ("pending", "processed"):
            self._files.labels(state)

    def found(self, stock: Stock, free_bytes: int) -> None:
        """This is what there is now, and how many bytes are free on the disk."""
        self._accounts.labels("free").set(stock.free_accounts)
        self._accounts.labels("paid").set(stock.paid_accounts)
        self._held.set(stock.held)
        self._balance.set(stock.balance)
        self._files.labels("pending").set(stock.pending_files)
        self._files.labels("processed").set(stock.processed_files)
        self._bytes.set(stock.bytes)
        self._free.set(free_bytes)
        self._updated.set_to_current_time()
