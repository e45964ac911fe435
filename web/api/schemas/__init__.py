"""Response schemas: mypy checks handlers against them, and the OpenAPI document shows them."""
