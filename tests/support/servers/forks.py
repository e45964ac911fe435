"""Processes that are forks of one that has imported their modules, which takes up to a second."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([f"tests.support.servers.{name}" for name in ("cluster", "storage_processes")])
