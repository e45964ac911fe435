// The options of a conversion: a form control for each, made from the JSON Schema of the pair of formats.

const create = (tag, properties) => Object.assign(document.createElement(tag), properties);
const defaultOf = (schema) => schema.type === "boolean" ? String(schema.default ?? false) : String(schema.default ?? "");
const choicesOf = (schema) => schema.enum ?? (schema.const === undefined ? null : [schema.const]);
const placeholderOf = ({ default: value, examples }) => value ?? (examples ? `e.g. ${examples[0]}` : "");
const isSlider = ({ type, minimum, maximum, default: value }) => type === "integer" && value !== undefined && maximum - minimum < 100;
const valueOf = (control) => control.type === "checkbox" ? String(control.checked) : control.value.trim();
export const isSecret = (schema) => schema?.format === "password";

function createSelect(schema, choices) {
  const control = create("select", {});
  const values = schema.default === undefined ? ["", ...choices] : choices;
  control.append(...values.map((value) => new Option(value === "" ? "not set" : value, value)));
  control.value = defaultOf(schema);
  return control;
}

function createText(schema) {
  const control = create("input", { type: isSecret(schema) ? "password" : "text", autocomplete: "off", spellcheck: false });
  if (!isSecret(schema)) control.placeholder = placeholderOf(schema);
  if (schema.maxLength) control.maxLength = schema.maxLength;
  if (schema.pattern) control.pattern = schema.pattern.replace(/^\^|\$$/g, "");
  return control;
}

function createNumber(schema) {
  const control = create("input", { type: isSlider(schema) ? "range" : "number" });
  for (const [attribute, value] of [["min", schema.minimum], ["max", schema.maximum]]) {
    if (value !== undefined) control.setAttribute(attribute, value);
  }
  control.step = schema.type === "integer" ? 1 : "any";
  if (isSlider(schema)) control.value = defaultOf(schema);
  else control.placeholder = placeholderOf(schema);
  return control;
}

function createControl(schema) {
  const choices = choicesOf(schema);
  if (choices) return createSelect(schema, choices);
  if (schema.type === "boolean") return create("input", { type: "checkbox", checked: schema.default ?? false });
  return schema.type === "string" ? createText(schema) : createNumber(schema);
}

// The fields of the options in `container`, a <details>. `prefix` makes their ids unique on the page.
export class OptionFields {
  constructor(container, prefix) {
    this.container = container;
    this.prefix = prefix;
    this.schemas = {};
    this.controls = {};
    container.addEventListener("input", () => this.update());
    container.addEventListener("invalid", () => { container.open = true; }, true); // to show the field's message
  }

  // Shows other options. Values of options that were there before are kept.
  show(schemas) {
    const kept = this.values();
    this.schemas = schemas;
    this.controls = {};
    const fields = Object.entries(schemas).map(([name, schema]) => this.createField(name, schema));
    this.container.querySelector(".options").replaceChildren(...fields);
    for (const [name, value] of Object.entries(kept)) {
      const control = this.controls[name];
      if (control?.type === "checkbox") control.checked = value === "true";
      else if (control) control.value = value;
    }
    this.container.hidden = !fields.length;
    this.update();
  }

  createField(name, schema) {
    const field = create("div", { className: "field" }), id = `${this.prefix}-${name}`;
    const control = this.controls[name] = Object.assign(createControl(schema), { id, name });
    const label = create("label", { htmlFor: id, textContent: name.replaceAll("_", " ") });
    const hint = create("span", { id: `${id}-hint`, className: "hint", textContent: (schema.description ?? "").replaceAll("`", "") });
    control.setAttribute("aria-describedby", hint.id);
    if (control.type === "checkbox") label.prepend(control);
    if (control.type === "range") label.append(create("output", { htmlFor: id }));
    field.append(...(control.type === "checkbox" ? [label, hint] : [label, control, hint]));
    return field;
  }

  // The options whose values are not the defaults, as text.
  values() {
    const values = Object.entries(this.schemas).map(([name, schema]) => [name, valueOf(this.controls[name]), defaultOf(schema)]);
    return Object.fromEntries(values.filter(([, value, standard]) => value !== "" && value !== standard));
  }

  update() {
    const count = Object.keys(this.values()).length;
    this.container.querySelector(".options-set").textContent = count ? `(${count} set)` : "";
    for (const output of this.container.querySelectorAll("output")) output.value = document.getElementById(output.htmlFor.value).value;
  }
}
