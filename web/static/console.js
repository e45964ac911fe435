// The API console: Swagger UI with what the requests of the OpenAPI document consist of.

/* global SwaggerUIBundle */

import { base } from "./base.js";

const api = await (await fetch(`${base}/api/v1/openapi.json`)).json();
const toText = (value) => (typeof value === "object" ? JSON.stringify(value) : value);

// What a reference refers to.
function resolve({ $ref, ...value }) {
  return $ref ? $ref.split("/").slice(1).reduce((found, key) => found[key], api) : value;
}

// The fields of a schema and of its parts.
function fieldsOf(schema) {
  const { properties, allOf = [] } = resolve(schema);
  return Object.assign({ ...properties }, ...allOf.map(fieldsOf));
}

// A field of a form that has this value at first. Lists and objects other than files are sent as JSON.
function withValue(field, value = "") {
  const { $ref, type, items, default: _, ...others } = { ...resolve({ $ref: field.$ref }), ...field };
  if ((items ?? field).format === "binary") return field;
  return { ...others, type: items || type === "object" ? "string" : type, examples: [toText(value)] };
}

for (const operation of Object.values(api.paths).flatMap(Object.values)) {
  for (const parameter of operation.parameters ?? []) {
    if (!parameter.required) delete parameter.example;
  }
  const form = operation.requestBody?.content["multipart/form-data"];
  if (form) {
    const fields = Object.entries(fieldsOf(form.schema));
    form.schema = { type: "object", properties: {} };
    for (const [name, field] of fields) form.schema.properties[name] = withValue(field, form.example[name]);
  }
  // Swagger UI shows the response that it gets. The descriptions of responses would slow it down by seconds.
  for (const [status, response] of Object.entries(operation.responses ?? {})) {
    const { description, content = {} } = resolve(response);
    const types = Object.keys(content).map((type) => [type, {}]);
    operation.responses[status] = { description, content: Object.fromEntries(types) };
  }
}
delete api.components.responses;
delete api.components.headers;

document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
SwaggerUIBundle({
  spec: api,
  domNode: document.getElementById("console"),
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  tryItOutEnabled: true,
  // Else it sends all fields that are empty.
  plugins: [() => ({ components: { ParameterIncludeEmpty: () => null } })],
});
