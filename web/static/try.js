// The demo on the home page: the browser is the API client. The API key is kept in this tab's session storage.

const byId = (id) => document.getElementById(id);
const trial = byId("trial");
const catalogue = Object.fromEntries(Object.entries(trial.dataset).map(([name, text]) => [name, JSON.parse(text)]));
const KEY = "convertd_key";
const LOSSES = {
  detail: "the output format does not keep every detail",
  structure: "text, vectors, layers or pages become pixels",
};
const objectUrls = [];
let file = null;
let source = null; // the format of the file; undefined if its name has no known extension
let schemas = {}; // of the options of the pair, by name

const apiKey = () => sessionStorage.getItem(KEY);
const formatSize = (size) => size < 1024 ? `${size} B` : size < 1048576 ? `${(size / 1024).toFixed(1)} kB` : `${(size / 1048576).toFixed(2)} MB`;
const safeName = (name) => name.replace(/[^\p{L}\p{N} ._()-]/gu, "_");

function setMessage(text, isError = false) {
  byId("message").textContent = text;
  byId("message").className = isError ? "note bad" : "muted";
}

class RequestError extends Error {}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(`/api/v1${path}`, { ...options, headers: { ...(apiKey() && { Authorization: `Bearer ${apiKey()}` }), ...options.headers }, cache: "no-store" });
  } catch {
    throw new RequestError("The server cannot be reached. Try again.");
  }
  if (response.ok) return response;
  const { error } = await response.json();
  throw new RequestError(`${error.message} (${error.code}, ${error.request_id})`);
}

function formatOf(name) {
  const extension = name.split(".").pop().toLowerCase();
  return Object.keys(catalogue.extensions).find((format) => format === extension || catalogue.extensions[format].includes(extension));
}

function updateForm() {
  byId("key-form").hidden = Boolean(apiKey());
  byId("key-saved").hidden = !apiKey();
  byId("key-prefix").textContent = `${(apiKey() ?? "").slice(0, 15)}…`;
  byId("convert").disabled = !apiKey() || !file;
  const count = Object.keys(optionsSet()).length;
  byId("options-set").textContent = count ? `(${count} set)` : "";
  for (const output of byId("option-fields").querySelectorAll("output")) output.value = byId(output.htmlFor.value).value;
}

const optionId = (name) => `option-${name}`;
const defaultOf = (schema) => schema.type === "boolean" ? String(schema.default ?? false) : String(schema.default ?? "");
const choicesOf = (schema) => schema.enum ?? (schema.const === undefined ? null : [schema.const]);
const placeholderOf = ({ default: value, examples }) => value ?? (examples ? `e.g. ${examples[0]}` : "");
const isSlider = ({ type, minimum, maximum, default: value }) => type === "integer" && value !== undefined && maximum - minimum < 100;

function createControl(name, schema) {
  const choices = choicesOf(schema);
  let control;
  if (choices) {
    control = document.createElement("select");
    const values = schema.default === undefined ? ["", ...choices] : choices;
    control.append(...values.map((value) => new Option(value === "" ? "not set" : value, value)));
    control.value = defaultOf(schema);
  } else if (schema.type === "boolean") {
    control = Object.assign(document.createElement("input"), { type: "checkbox", checked: schema.default ?? false });
  } else if (schema.type === "string") {
    const type = schema.format === "password" ? "password" : "text";
    control = Object.assign(document.createElement("input"), { type, autocomplete: "off", spellcheck: false });
    control.placeholder = type === "text" ? placeholderOf(schema) : "";
    if (schema.maxLength) control.maxLength = schema.maxLength;
    if (schema.pattern) control.pattern = schema.pattern.replace(/^\^|\$$/g, "");
  } else {
    control = Object.assign(document.createElement("input"), { type: isSlider(schema) ? "range" : "number" });
    for (const [attribute, value] of [["min", schema.minimum], ["max", schema.maximum]]) {
      if (value !== undefined) control.setAttribute(attribute, value);
    }
    control.step = schema.type === "integer" ? 1 : "any";
    if (isSlider(schema)) control.value = defaultOf(schema);
    else control.placeholder = placeholderOf(schema);
  }
  return Object.assign(control, { id: optionId(name) });
}

function createField(name, schema) {
  const field = Object.assign(document.createElement("div"), { className: "field" });
  const label = Object.assign(document.createElement("label"), { htmlFor: optionId(name), textContent: name.replaceAll("_", " ") });
  const hint = Object.assign(document.createElement("span"), { id: `${optionId(name)}-hint`, className: "hint" });
  hint.textContent = (schema.description ?? "").replaceAll("`", "");
  const control = createControl(name, schema);
  control.setAttribute("aria-describedby", hint.id);
  if (control.type === "checkbox") label.prepend(control);
  if (control.type === "range") label.append(Object.assign(document.createElement("output"), { htmlFor: control.id }));
  field.append(...(control.type === "checkbox" ? [label, hint] : [label, control, hint]));
  return field;
}

const valueOf = (control) => control.type === "checkbox" ? String(control.checked) : control.value.trim();

// The options whose values are not the defaults, as text.
function optionsSet() {
  const values = Object.entries(schemas).map(([name, schema]) => [name, valueOf(byId(optionId(name))), defaultOf(schema)]);
  return Object.fromEntries(values.filter(([, value, standard]) => value !== "" && value !== standard));
}

// Shows the options of the pair of formats. Values of options that both pairs have are kept.
async function showOptions() {
  const kept = optionsSet();
  const pair = `/formats/${source}/${byId("target").value}`;
  let conversion = null;
  try {
    if (source) conversion = (await (await request(pair)).json()).data;
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
  }
  if (source && pair !== `/formats/${source}/${byId("target").value}`) return; // a later choice is being loaded
  schemas = conversion?.options.properties ?? {};
  byId("option-fields").replaceChildren(...Object.entries(schemas).map(([name, schema]) => createField(name, schema)));
  for (const [name, value] of Object.entries(kept)) {
    const control = byId(optionId(name));
    if (control?.type === "checkbox") control.checked = value === "true";
    else if (control) control.value = value;
  }
  byId("option-list").hidden = !Object.keys(schemas).length;
  updateForm();
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// Shows what is in the file and what its conversion loses. Costs no credit.
async function inspect() {
  const inspected = file, target = byId("target").value;
  byId("inspection").hidden = true;
  if (!file || !apiKey()) return;
  const form = new FormData();
  for (const [name, value] of Object.entries({ file, output_format: target, dry_run: "true" })) form.append(name, value);
  let data;
  try {
    data = (await (await request("/convert", { method: "POST", body: form, headers: { Accept: "application/json" } })).json()).data;
  } catch (error) {
    if (error instanceof RequestError) return; // the conversion shows the error
    throw error;
  }
  if (inspected !== file || target !== byId("target").value) return;
  const facts = [data.input_format];
  if (data.width && data.height) facts.push(`${data.width} × ${data.height} pixels`);
  if (data.pages) facts.push(plural(data.pages, "page"));
  const losses = data.losses.map((loss) => LOSSES[loss] ?? loss);
  byId("inspection").textContent = `${facts.join(", ")}. ${losses.length ? `To ${data.output_format}: ${losses.join("; ")}.` : "Nothing is lost."}`;
  byId("inspection").hidden = false;
  if (data.input_format !== source) {
    source = data.input_format;
    await showOptions();
  }
}

async function selectTarget() {
  await Promise.all([showOptions(), inspect()]);
}

function setBalance(credits) {
  byId("balance").textContent = `${credits} ${credits === 1 ? "credit" : "credits"}`;
}

async function checkKey() {
  updateForm();
  if (!apiKey()) return;
  try {
    const { meta } = await (await request("/account")).json();
    setBalance(meta.credits_remaining);
    setMessage(file ? "Ready." : "Choose a file to convert.");
    inspect();
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    sessionStorage.removeItem(KEY);
    updateForm();
    setMessage(error.message, true);
  }
}

function selectFile(selected) {
  if (!selected) return;
  file = selected;
  byId("chosen").textContent = file.name;
  source = formatOf(file.name);
  byId("chosen-hint").textContent = `${formatSize(file.size)}${source ? `, ${source}` : ""}. Drop or choose another file to replace it.`;
  const targets = catalogue.targets[source] ?? [...byId("target").options].map((option) => option.value);
  const previous = byId("target").value;
  const target = targets.includes(previous) && previous !== source ? previous : targets.find((name) => name !== source) ?? targets[0];
  byId("target").replaceChildren(...targets.map((name) => new Option(name, name, name === target, name === target)));
  updateForm();
  setMessage(apiKey() ? "Ready." : "Enter an API key to convert the file.");
  selectTarget();
}

function showPicture(container, blob, name, fallbackText) {
  const fallback = Object.assign(document.createElement("p"), { textContent: fallbackText });
  const image = new Image();
  image.alt = name;
  image.addEventListener("error", () => container.replaceChildren(fallback));
  objectUrls.push(URL.createObjectURL(blob));
  image.src = objectUrls.at(-1);
  container.replaceChildren(image);
}

function fillSamples(data, options) {
  const values = { FILE: safeName(file.name), RESULT: byId("save").download, TARGET: data.output_format, ID: data.file_id };
  const fill = (text, words) => text.replace(/\b[A-Z]+\b/g, (word) => words[word] ?? word);
  const shown = Object.entries(options).map(([name, value]) => ({ OPTION: name, VALUE: schemas[name]?.format === "password" ? "…" : value.replace(/[^\p{L}\p{N}.,:#-]/gu, "_") }));
  for (const sample of trial.querySelectorAll("[data-before]")) {
    const { before, option, after } = sample.dataset;
    const lines = option ? shown.map((words) => fill(option, words)) : [];
    sample.querySelector("code").textContent = fill(before, values) + lines.join("") + fill(after, values);
  }
}

function showResult(data, blob, options, milliseconds) {
  objectUrls.splice(0).forEach((url) => URL.revokeObjectURL(url));
  const fallbackText = (format) => `This browser cannot show ${format.toUpperCase()}`;
  const zipped = data.container === "zip";
  showPicture(byId("before"), file, file.name, fallbackText(data.input_format));
  const stem = file.name.replace(/\.[^.]*$/, "") || "file";
  const name = safeName(`${stem}.${zipped ? "zip" : catalogue.extensions[data.output_format]?.[0] ?? data.output_format}`);
  showPicture(byId("after"), new Blob([blob], { type: catalogue.media[data.output_format] }), name, zipped ? `A ZIP archive of ${plural(data.file_count, "file")}` : fallbackText(data.output_format));
  byId("before-name").textContent = data.input_format;
  byId("after-name").textContent = data.output_format;
  byId("before-size").textContent = formatSize(data.original_size);
  const reduction = data.reduction_percent;
  byId("after-size").textContent = `${formatSize(data.processed_size)}, ${Math.abs(reduction)} % ${reduction < 0 ? "larger" : "smaller"}`;
  byId("meter").style.transform = `scaleX(${Math.min(1, data.processed_size / data.original_size)})`;
  byId("save").download = name;
  byId("save").href = URL.createObjectURL(blob);
  objectUrls.push(byId("save").href);
  const quality = data.quality_used ? ` Quality ${data.quality_used}.` : "";
  byId("facts").textContent = `Converted in ${data.processing_time_ms} ms, ${milliseconds} ms including the transfer.${quality}`;
  byId("warnings").hidden = !data.warnings.length;
  byId("warnings").lastElementChild.replaceChildren(...data.warnings.map((warning) => Object.assign(document.createElement("li"), { textContent: `${warning.message} (${warning.code})` })));
  fillSamples(data, options);
  byId("result").hidden = false;
}

async function convert(event) {
  event.preventDefault();
  const options = optionsSet();
  const form = new FormData();
  form.append("file", file);
  form.append("output_format", byId("target").value);
  for (const [name, value] of Object.entries(options)) form.append(name, value);
  byId("convert").disabled = true;
  setMessage("Converting…");
  const started = performance.now();
  try {
    const { data, meta } = await (await request("/convert", { method: "POST", body: form, headers: { Accept: "application/json" } })).json();
    const milliseconds = Math.round(performance.now() - started);
    setBalance(meta.credits_remaining);
    const blob = await (await request(`/files/${data.file_id}/download`)).blob();
    showResult(data, blob, options, milliseconds);
    setMessage(`Done: ${data.input_format} to ${data.output_format}.`);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    byId("result").hidden = true;
    setMessage(error.message, true);
  } finally {
    updateForm();
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value.trim());
  byId("key").value = "";
  checkKey();
});
byId("remove-key").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  updateForm();
  byId("key").focus();
  setMessage("The key has been removed.");
});
byId("file").addEventListener("change", () => selectFile(byId("file").files[0]));
byId("options").addEventListener("submit", convert);
byId("options").addEventListener("input", updateForm);
byId("options").addEventListener("invalid", () => { byId("option-list").open = true; }, true); // to show the field's message
byId("target").addEventListener("change", selectTarget);
for (const name of ["dragover", "dragleave", "drop"]) {
  byId("drop").addEventListener(name, (event) => {
    event.preventDefault();
    byId("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") selectFile(event.dataTransfer.files[0]);
  });
}
trial.hidden = false;
checkKey();
