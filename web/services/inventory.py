"""The inventory: what there is in the database and on the disk, looked up for the metrics from time to time."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from storage import stock
from storage.database import Database
from web.metrics.stock import StockMetrics


class Inventory:
    """Of everything below the data folder."""

    def __init__(self, database: Database, data_dir: Path, metrics: StockMetrics) -> None:
        self._database = database
        self._data_dir = data_dir
        self._metrics = metrics

    async def take(self) -> None:
        """Looks everything up, and tells the metrics."""
        found = await self._database.run(stock.take)
        disk = await asyncio.to_thread(shutil.disk_usage, self._data_dir)
        self._metrics.found(found, disk.free)
