"""A TCP proxy that can stop forwarding, as a network that drops all packets."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_BLOCK = 64 << 10  # bytes


class TcpProxy:
    """Forwards connections to a port of this machine. `port` is its own."""

    def __init__(self, upstream: int) -> None:
        self.port = 0
        self._upstream = upstream
        self._loop = asyncio.new_event_loop()
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut_off(self) -> None:
        """Forwards nothing until `reconnect`: connections stay open and are accepted, but nothing arrives."""
        self._loop.call_soon_threadsafe(self._forwarding.clear)

    def reconnect(self) -> None:
        """Forwards again, also what was sent meanwhile."""
        self._loop.call_soon_threadsafe(self._forwarding.set)

    def run(self, started: threading.Event) -> None:
        """Forwards until `stop`."""
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end_connections())
        self._loop.close()

    def stop(self) -> None:
        """Ends all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _end_connections(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # the transports close in the next round of the loop

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self._forwarding.wait()
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.close()
            return
        self._writers.add(upstream_writer)
        await asyncio.gather(self._forward(reader, upstream_writer), self._forward(upstream_reader, writer))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_BLOCK):
                    await self._forwarding.wait()
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.close()


@contextmanager
def tcp_proxy(upstream: int) -> Iterator[TcpProxy]:
    """A proxy in front of a port of this machine."""
    proxy, started = TcpProxy(upstream), threading.Event()
    thread = threading.Thread(target=proxy.run, args=(started,))
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
