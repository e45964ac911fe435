"""The API reference, derived from an OpenAPI document."""

from typing import Any

from web.docs.api_reference import endpoints

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://convert.example/api/v1"}],
    "security": [{"bearer": []}],
    "components": {
        "responses": {"NotFound": {"description": "No such file."}},
        "schemas": {"Status": {"enum": ["pending", "processed"], "description": "Where the file is."}},
    },
    "paths": {
        "/convert": {
            "post": {
                "operationId": "convert",
                "summary": "Converts a file.",
                "tags": ["Conversion"],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "required": ["file", "output_format"],
                                "properties": {
                                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                                    "output_format": {"type": "string", "examples": ["webp"]},
                                    "quality": {
                                        "type": "integer",
                                        "minimum": 1,
                                        "maximum": 100,
                                        "description": "Of what is lossy.",
                                        "examples": [80],
                                    },
                                },
                            }
                        }
                    }
                },
                "responses": {"200": {"description": "The file.", "content": {"image/*": {}}}},
            }
        },
        "/files/{file_id}": {
            "get": {
                "operationId": "file",
                "summary": "Describes a file.",
                "tags": ["Files"],
                "security": [],
                "parameters": [
                    {
                        "name": "file_id",
                        "in": "path",
                        "required": True,
                        "description": "The file.",
                        "schema": {"type": "string"},
                    },
                ],
                "responses": {
                    "200": {
                        "description": "All that is known.",
                        "content": {
                            "application/json": {
                                "schema": {
                                    "properties": {
                                        "data": {
                                            "properties": {
                                                "size": {"type": ["integer", "null"]},
                                                "names": {"type": "array", "items": {"type": "string"}},
                                                "status": {"$ref": "#/components/schemas/Status"},
                                            }
                                        }
                                    }
                                },
                                "example": {"data": {"size": 3}},
                            }
                        },
                    },
                    "404": {"$ref": "#/components/responses/NotFound"},
                },
            },
        },
    },
}


def test_a_form() -> None:
    convert, _ = endpoints(DOCUMENT)
    assert (convert.id, convert.method, convert.path, convert.tag) == ("convert", "POST", "/convert", "Conversion")
    assert convert.needs_key
    assert [(field.name, field.type, field.required) for field in convert.fields] == [
        ("file", "file", True),
        ("output_format", "string", True),
        ("quality", "integer 1 to 100", False),
    ]
    assert convert.fields[2].description == "Of what is lossy."
    assert convert.samples["curl"].splitlines() == [
        "curl https://convert.example/api/v1/convert \\",
        '  -H "Authorization: Bearer $CONVERTD_API_KEY" \\',
        '  -F "file=@photo.heic" \\',
        "  -F output_format=webp \\",
        "  -F quality=80 \\",
        '  -o "result.webp"',
    ]


def test_a_response() -> None:
    _, file = endpoints(DOCUMENT)
    assert not file.needs_key
    assert [(field.name, field.location) for field in file.fields] == [("file_id", "path")]
    known, missing = file.responses
    assert [(field.name, field.type) for field in known.fields] == [
        ("size", "integer or null"),
        ("names", "string[]"),
        ("status", '"pending" | "processed"'),
    ]
    assert known.fields[2].description == "Where the file is."
    assert known.example == '{\n  "data": {\n    "size": 3\n  }\n}'
    assert (missing.status, missing.description) == ("404", "No such file.")
    assert (missing.fields, missing.example) == ((), None)
    assert "https://convert.example/api/v1/files/FILE_ID" in file.samples["curl"]


def test_the_fields_of_a_body_and_of_what_it_refers_to() -> None:
    status = {"type": ["string", "null"], "enum": ["pending", "processed", None], "examples": ["pending"]}
    options = {"required": ["pages"], "properties": {"pages": {"type": "string", "examples": ["1"]}}}
    count = {"type": ["integer", "null"], "minimum": 1, "maximum": 9}
    own = {"properties": {"status": status, "count": count, "state": {"$ref": "#/components/schemas/Status"}}}
    schema = {"required": ["status"], "allOf": [own, {"$ref": "#/components/schemas/Options"}]}
    operation: dict[str, Any] = {
        **DOCUMENT["paths"]["/convert"]["post"],
        "requestBody": {"content": {"application/json": {"schema": schema}}},
    }
    schemas = {**DOCUMENT["components"]["schemas"], "Options": options}

    (found,) = endpoints({**DOCUMENT, "components": {"schemas": schemas}, "paths": {"/a": {"post": operation}}})

    assert [(field.name, field.type, field.location, field.required) for field in found.fields] == [
        ("status", '"pending" | "processed"', "body", True),
        ("count", "integer 1 to 9", "body", False),
        ("state", '"pending" | "processed"', "body", False),
        ("pages", "string", "body", True),
    ]
    assert '{"status": "pending", "pages": "1"}' in found.samples["curl"]
