// The demo on the home page: the browser is the API client. The API key is kept in this tab's session storage.

const byId = (id) => document.getElementById(id);
const trial = byId("trial");
const catalogue = Object.fromEntries(Object.entries(trial.dataset).map(([name, text]) => [name, JSON.parse(text)]));
const KEY = "convertd_key";
const objectUrls = [];
let file = null;

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
    response = await fetch(`/api/v1${path}`, { ...options, headers: { Authorization: `Bearer ${apiKey()}`, ...options.headers }, cache: "no-store" });
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
  byId("quality-field").hidden = !catalogue.lossy.includes(byId("target").value);
  byId("quality-shown").value = byId("quality").value;
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
  const source = formatOf(file.name);
  byId("chosen-hint").textContent = `${formatSize(file.size)}${source ? `, ${source}` : ""}. Drop or choose another file to replace it.`;
  const targets = catalogue.targets[source] ?? [...byId("target").options].map((option) => option.value);
  const previous = byId("target").value;
  const target = targets.includes(previous) && previous !== source ? previous : targets.find((name) => name !== source) ?? targets[0];
  byId("target").replaceChildren(...targets.map((name) => new Option(name, name, name === target, name === target)));
  updateForm();
  setMessage(apiKey() ? "Ready." : "Enter an API key to convert the file.");
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

function fillSamples(data, quality) {
  const values = { FILE: safeName(file.name), RESULT: byId("save").download, TARGET: data.output_format, QUALITY: quality, ID: data.file_id };
  for (const sample of trial.querySelectorAll("[data-lossy]")) {
    const text = quality === null ? sample.dataset.lossless : sample.dataset.lossy;
    sample.querySelector("code").textContent = text.replace(/\b(FILE|RESULT|TARGET|QUALITY|ID)\b/g, (placeholder) => values[placeholder]);
  }
}

function showResult(data, blob, quality, milliseconds) {
  objectUrls.splice(0).forEach((url) => URL.revokeObjectURL(url));
  const fallbackText = (format) => `This browser cannot show ${format.toUpperCase()}`;
  showPicture(byId("before"), file, file.name, fallbackText(data.input_format));
  const stem = file.name.replace(/\.[^.]*$/, "") || "file";
  const name = safeName(`${stem}.${catalogue.extensions[data.output_format]?.[0] ?? data.output_format}`);
  showPicture(byId("after"), new Blob([blob], { type: catalogue.media[data.output_format] }), name, fallbackText(data.output_format));
  byId("before-name").textContent = data.input_format;
  byId("after-name").textContent = data.output_format;
  byId("before-size").textContent = formatSize(data.original_size);
  const reduction = data.reduction_percent;
  byId("after-size").textContent = `${formatSize(data.processed_size)}, ${Math.abs(reduction)} % ${reduction < 0 ? "larger" : "smaller"}`;
  byId("meter").style.transform = `scaleX(${Math.min(1, data.processed_size / data.original_size)})`;
  byId("save").download = name;
  byId("save").href = URL.createObjectURL(blob);
  objectUrls.push(byId("save").href);
  byId("facts").textContent = `Converted in ${data.processing_time_ms} ms, ${milliseconds} ms including the transfer.`;
  byId("warnings").hidden = !data.warnings.length;
  byId("warnings").lastElementChild.replaceChildren(...data.warnings.map((warning) => Object.assign(document.createElement("li"), { textContent: `${warning.message} (${warning.code})` })));
  fillSamples(data, quality);
  byId("result").hidden = false;
}

async function convert(event) {
  event.preventDefault();
  const quality = byId("quality-field").hidden ? null : byId("quality").value;
  const form = new FormData();
  form.append("file", file);
  form.append("output_format", byId("target").value);
  if (quality !== null) form.append("quality", quality);
  byId("convert").disabled = true;
  setMessage("Converting…");
  const started = performance.now();
  try {
    const { data, meta } = await (await request("/convert", { method: "POST", body: form, headers: { Accept: "application/json" } })).json();
    const milliseconds = Math.round(performance.now() - started);
    setBalance(meta.credits_remaining);
    const blob = await (await request(`/files/${data.file_id}/download`)).blob();
    showResult(data, blob, quality, milliseconds);
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
for (const name of ["dragover", "dragleave", "drop"]) {
  byId("drop").addEventListener(name, (event) => {
    event.preventDefault();
    byId("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") selectFile(event.dataTransfer.files[0]);
  });
}
trial.hidden = false;
checkKey();
