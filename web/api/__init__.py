"""The v1 contract: request fields, operations, errors, response schemas. Imports nothing else of web."""
