// The options of conversions: form controls made from the JSON Schema of a pair of formats, in groups.

import { create } from "./base.js";
import { _ } from "./texts.js";

const MAIN = 3; // options of a group that are shown first
const defaultOf = (schema) => schema.type === "boolean" ? String(schema.default ?? false) : String(schema.default ?? "");
const choicesOf = (schema) => schema.enum ?? (schema.const === undefined ? null : [schema.const]);
const textOf = (value) => typeof value !== "object" ? value : Array.isArray(value) && !value.some((one) => typeof one === "object") ? value.join(",") : JSON.stringify(value);
const placeholderOf = ({ default: value, examples }) => value ?? (examples ? _("e.g. {example}", { example: String(textOf(examples[0])) }) : "");
const isSlider = ({ type, minimum, maximum, default: value }) => type === "integer" && value !== undefined && maximum - minimum < 100;
const isFile = (schema) => schema["x-file"] && !schema.examples.some((one) => !one.startsWith("file_")); // a name is no value
export const isSecret = (schema) => schema?.format === "password";

// The value of a control: text, or a file.
function readControl(control) {
  if (control.multiple) return control.files.length ? [...control.files] : "";
  if (control.type === "file") return control.files[0] ?? "";
  return control.type === "checkbox" ? String(control.checked) : control.value.trim();
}

function writeControl(control, value) {
  if (control.type === "file") {
    const chosen = new DataTransfer();
    for (const file of value ? [value].flat() : []) chosen.items.add(file);
    control.files = chosen.files;
  } else if (control.type === "checkbox") control.checked = value === "true";
  else control.value = value;
}

function createSelect(schema, choices) {
  const control = create("select", {});
  const values = schema.default === undefined ? ["", ...choices] : choices;
  control.append(...values.map((value) => new Option(value === "" ? _("not set") : value, value)));
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
  if (!isSlider(schema)) control.placeholder = placeholderOf(schema);
  return control;
}

function createControl(schema) {
  const choices = choicesOf(schema);
  if (isFile(schema)) return create("input", { type: "file", multiple: schema.maximum > 1 });
  if (choices) return createSelect(schema, choices);
  if (schema.type === "boolean") return create("input", { type: "checkbox" });
  return ["integer", "number"].includes(schema.type) ? createNumber(schema) : createText(schema);
}

// The schemas by group: [group, [name, schema][]][]. Those that no group names are in the last one.
function grouped(groups, schemas) {
  const left = new Map(Object.entries(schemas));
  const found = groups.map((group) => [group, Object.keys(group.labels).filter((name) => left.has(name)).map((name) => {
    const schema = left.get(name);
    left.delete(name);
    return [name, schema];
  })]);
  found.at(-1)[1].push(...left);
  return found.filter(([, own]) => own.length);
}

// The fields of the options in `container`. `prefix` makes their ids unique on the page. `open` names the groups that
// are open, of which `shown` fields are at first, and `changed` is called after each change by the visitor. `base` has the values that hold where nothing
// is entered; without it, the defaults hold.
export class OptionFields {
  constructor(container, { prefix, groups, open = [], shown = MAIN, changed = () => {}, base = () => ({}) }) {
    Object.assign(this, { container, prefix, groups, open, shown, base });
    this.schemas = {};
    this.controls = {};
    this.entered = new Map(); // values by name, text or files, where the visitor has changed them
    container.addEventListener("input", ({ target }) => {
      if (this.controls[target.name] !== target) return;
      this.enter(target.name, readControl(target));
      changed(target.name);
    });
    container.addEventListener("invalid", ({ target }) => { // to show the field's message
      for (let one = target; one !== container; one = one.parentElement) if (one.localName === "details") one.open = true;
    }, true);
  }

  // Shows other options. Values of options that were there before are kept, and so is the focus.
  show(schemas) {
    const focused = this.container.contains(document.activeElement) ? document.activeElement.id : null;
    const unfolded = new Set([...this.container.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    const opened = this.container.childElementCount ? (name) => unfolded.has(name) : (name) => this.open.includes(name);
    this.schemas = schemas;
    this.controls = {};
    this.container.replaceChildren(...grouped(this.groups, schemas).map(([group, own]) => this.createGroup(group, own)));
    for (const one of this.container.querySelectorAll("details")) one.open = opened(one.dataset.name);
    this.refresh();
    if (focused) document.getElementById(focused)?.focus();
  }

  createGroup({ name, title, labels }, own) {
    const group = create("details", { className: "group" });
    group.dataset.name = name;
    const summary = create("summary", { textContent: `${title} ` });
    summary.append(create("span", { className: "options-set" }));
    const fields = own.map(([option, schema]) => this.createField(option, schema, labels[option]));
    const first = create("div", { className: "options" });
    first.append(...fields.splice(0, fields.length === this.shown + 1 ? this.shown + 1 : this.shown));
    group.append(summary, first);
    if (fields.length) {
      const further = create("details", { className: "further" }), rest = create("div", { className: "options" });
      further.dataset.name = `${name}, further`;
      rest.append(...fields);
      further.append(create("summary", { textContent: _("{count} more", { count: fields.length }) }), rest);
      group.append(further);
    }
    return group;
  }

  createField(name, schema, label = name.replaceAll("_", " ")) {
    const field = create("div", { className: "field" }), id = `${this.prefix}-${name}`;
    const control = this.controls[name] = Object.assign(createControl(schema), { id, name });
    const title = create("label", { htmlFor: id, textContent: label });
    const hint = create("span", { id: `${id}-hint`, className: "hint", lang: "en", textContent: (schema.description ?? "").replaceAll("`", "") });
    control.setAttribute("aria-describedby", hint.id);
    if (control.type === "checkbox") title.prepend(control);
    if (control.type === "range") title.append(create("output", { htmlFor: id }));
    field.append(...(control.type === "checkbox" ? [title, hint] : [title, control, hint]));
    return field;
  }

  // What the visitor has entered, by name.
  get values() {
    return Object.fromEntries(this.entered);
  }

  enter(name, value) {
    if (value === "") this.entered.delete(name);
    else this.entered.set(name, value);
    this.update();
  }

  set(name, value) {
    this.enter(name, value);
    if (this.controls[name]) writeControl(this.controls[name], value);
  }

  // Shows the values that hold where the visitor has entered nothing.
  refresh() {
    const values = { ...this.base(), ...this.values };
    for (const [name, control] of Object.entries(this.controls)) writeControl(control, values[name] ?? defaultOf(this.schemas[name]));
    this.update();
  }

  update() {
    const base = this.base();
    const isSet = (name) => this.entered.has(name) && this.entered.get(name) !== (base[name] ?? defaultOf(this.schemas[name]));
    for (const group of this.container.querySelectorAll(".group")) {
      const count = Object.keys(this.controls).filter((name) => isSet(name) && group.contains(this.controls[name])).length;
      group.querySelector(".options-set").textContent = count ? _("({count} set)", { count }) : "";
    }
    for (const output of this.container.querySelectorAll("output")) output.value = document.getElementById(output.htmlFor.value).value;
  }
}

// The values that a request has to send for a pair with these schemas: those that differ from the defaults.
export function givenOptions(values, schemas) {
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => schemas[name] && value !== defaultOf(schemas[name])));
}
