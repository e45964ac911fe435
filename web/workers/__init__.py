"""Conversions on a Dask cluster: the executor of a server, and the worker process. Needs the extra `cluster`."""
