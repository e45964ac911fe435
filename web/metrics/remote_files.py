"""Metrics of files that are fetched from URLs of clients, and of results that are sent to them."""

from typing import Literal, TypeAlias, get_args

from prometheus_client import CollectorRegistry, Counter

Transfer: TypeAlias = Literal["fetch", "export"]


class RemoteFileMetrics:
    """Transfers of this server by their outcome: `completed`, or the reason why not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._transfers = Counter(
            "convertd_remote_transfers",
            "Files fetched from URLs of clients, and results sent to them, by outcome.",
            ("transfer", "outcome"),
            registry=registry,
        )
        for transfer in get_args(Transfer):
            self._transfers.labels(transfer, "completed")

    def record(self, transfer: Transfer, outcome: str = "completed") -> None:
        """Counts a transfer that has ended."""
        self._transfers.labels(transfer, outcome).inc()
