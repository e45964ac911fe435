"""The API's document (OpenAPI 3.1), made of the routes and of what their handlers declare."""
