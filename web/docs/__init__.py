"""The documentation of the API: the OpenAPI document, the reference, samples, and recipes."""
