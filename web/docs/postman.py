"""The collection of the API for Postman and programs that read the same format, made of its OpenAPI document."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from web.api.values import API
from web.docs.api_reference import calls
from web.docs.code_samples import Call

_SCHEMA = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
_KEEP_IDS = """\
const json = (pm.response.headers.get('Content-Type') || '').startsWith('application/json');
for (const [name, value] of Object.entries((json && pm.response.json().data) || {}))
  if (name.endsWith('_id') && value) pm.collectionVariables.set(name, value);"""
"""A script that runs after each request: later ones have the ids of responses in their paths."""


def collection(document: Mapping[str, Any]) -> dict[str, Any]:
    """The collection (format 2.1): a request for each operation, in a folder for each tag.

    Its variables are `baseUrl`, the address of the server, `apiKey`, and those in paths, such as `file_id`.
    """
    base = document["servers"][0]["url"].removesuffix(API)
    variables = {"baseUrl": base, "apiKey": ""}
    folders: dict[str, list[dict[str, Any]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, operation, call in calls(document):
        parameters = operation.get("parameters", ())
        variables |= {one["name"]: one["example"] for one in parameters if one["in"] == "path"}
        (server,) = document["paths"][path].get("servers", document["servers"])
        below = server["url"].removeprefix(base) + re.sub(r"{(\w+)}", r"{{\1}}", path)
        folders[operation["tags"][0]].append(_item(below, operation, call))
    return {
        "info": {"name": document["info"]["title"], "version": document["info"]["version"], "schema": _SCHEMA},
        "auth": {"type": "bearer", "bearer": [{"key": "token", "value": "{{apiKey}}", "type": "string"}]},
        "event": [{"listen": "test", "script": {"type": "text/javascript", "exec": _KEEP_IDS.splitlines()}}],
        "variable": [{"key": name, "value": value} for name, value in variables.items()],
        "item": [{"name": name, "item": sorted(items, key=_order)} for name, items in folders.items()],
    }


def _item(path: str, operation: Mapping[str, Any], call: Call) -> dict[str, Any]:
    parameters = operation.get("parameters", ())
    query = _named(one for one in parameters if one["in"] == "query")
    request = {
        "method": call.method,
        "url": {"raw": f"{{{{baseUrl}}}}{path}", "host": ["{{baseUrl}}"], "path": path[1:].split("/"), "query": query},
        "header": _named(one for one in parameters if one["in"] == "header"),
        "description": f"{operation['summary']}. {operation.get('description', '')}",
    }
    if not call.needs_key:
        request["auth"] = {"type": "noauth"}
    if call.files or call.form:
        files = [{"key": name, "type": "file", "src": file} for name, file in call.files]
        texts = [{"key": name, "type": "text", "value": value} for name, value in call.form.items()]
        request["body"] = {"mode": "formdata", "formdata": [*files, *texts]}
    elif call.body is not None:
        body = json.dumps(call.body, indent=2, ensure_ascii=False)
        body = re.sub(r'"(file|key)_[0-9A-Za-z]{22}"', r'"{{\1_id}}"', body)
        request["body"] = {"mode": "raw", "raw": body, "options": {"raw": {"language": "json"}}}
    return {"name": operation["operationId"], "request": request}


def _order(item: Mapping[str, Any]) -> int:
    """Makes first what others read, and deletes last."""
    return ("PUT", "POST", "GET", "DELETE").index(item["request"]["method"])


def _named(parameters: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Headers or parameters of a query, of which those that may be missing are not sent."""
    return [
        {
            "key": one["name"],
            "value": str(one["example"]),
            "description": one["description"],
            "disabled": not one["required"],
        }
        for one in parameters
    ]
