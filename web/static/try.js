// The trial: the browser as a client of the API, with a key that stays in this tab.

const part = (id) => document.getElementById(id);
const trial = part("trial");
const known = Object.fromEntries(Object.entries(trial.dataset).map(([name, text]) => [name, JSON.parse(text)]));
const KEY = "convertd_key";
const shownUrls = [];
let file = null;

const key = () => sessionStorage.getItem(KEY);
const bytes = (size) => size < 1024 ? `${size} B` : size < 1048576 ? `${(size / 1024).toFixed(1)} kB` : `${(size / 1048576).toFixed(2)} MB`;

function say(text, bad = false) {
  part("say").textContent = text;
  part("say").className = bad ? "note bad" : "hush";
}

class Refusal extends Error {}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(`/api/v1${path}`, { ...options, headers: { Authorization: `Bearer ${key()}`, ...options.headers }, cache: "no-store" });
  } catch {
    throw new Refusal("The service could not be reached. Try again.");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json();
  throw new Refusal(`${error.message} (${error.code}, ${error.request_id})`);
}

function format(name) {
  const extension = name.split(".").pop().toLowerCase();
  return Object.keys(known.extensions).find((one) => one === extension || known.extensions[one].includes(extension));
}

function refresh() {
  part("key-form").hidden = Boolean(key());
  part("key-known").hidden = !key();
  part("key-shown").textContent = `${(key() ?? "").slice(0, 15)}…`;
  part("convert").disabled = !key() || !file;
  part("quality-field").hidden = !known.lossy.includes(part("target").value);
  part("quality-shown").value = part("quality").value;
}

function balance(credits) {
  part("balance").textContent = `${credits} ${credits === 1 ? "credit" : "credits"}`;
}

async function greet() {
  refresh();
  if (!key()) return;
  try {
    const { meta } = await (await ask("/account")).json();
    balance(meta.credits_remaining);
    say(file ? "Ready." : "Choose a file to begin.");
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    sessionStorage.removeItem(KEY);
    refresh();
    say(error.message, true);
  }
}

function choose(chosen) {
  if (!chosen) return;
  file = chosen;
  part("chosen").textContent = file.name;
  const source = format(file.name);
  part("chosen-hint").textContent = `${bytes(file.size)}${source ? `, ${source}` : ""}; choose or drop another to change it`;
  const targets = known.targets[source] ?? [...part("target").options].map((option) => option.value);
  const before = part("target").value;
  const wanted = targets.includes(before) && before !== source ? before : targets.find((one) => one !== source) ?? targets[0];
  part("target").replaceChildren(...targets.map((one) => new Option(one, one, one === wanted, one === wanted)));
  refresh();
  say(key() ? "Ready." : "Enter a key to convert it.");
}

function picture(place, blob, name, label) {
  const told = document.createElement("p");
  told.textContent = label;
  const image = new Image();
  image.alt = name;
  image.addEventListener("error", () => place.replaceChildren(told));
  shownUrls.push(URL.createObjectURL(blob));
  image.src = shownUrls.at(-1);
  place.replaceChildren(image);
}

function samples(data, quality) {
  const safe = (name) => name.replace(/[^\p{L}\p{N} ._()-]/gu, "_");
  const words = { FILE: safe(file.name), RESULT: part("save").download, TARGET: data.output_format, QUALITY: quality, ID: data.file_id };
  for (const place of trial.querySelectorAll("[data-lossy]")) {
    const text = quality === null ? place.dataset.lossless : place.dataset.lossy;
    place.querySelector("code").textContent = text.replace(/\b(FILE|RESULT|TARGET|QUALITY|ID)\b/g, (word) => words[word]);
  }
}

function show(data, blob, quality, milliseconds) {
  shownUrls.splice(0).forEach((url) => URL.revokeObjectURL(url));
  const label = (name) => `This browser cannot show ${name.toUpperCase()}`;
  picture(part("before"), file, file.name, label(data.input_format));
  const stem = file.name.replace(/\.[^.]*$/, "") || "file";
  const name = `${stem}.${known.extensions[data.output_format]?.[0] ?? data.output_format}`.replace(/[^\p{L}\p{N} ._()-]/gu, "_");
  picture(part("after"), new Blob([blob], { type: known.media[data.output_format] }), name, label(data.output_format));
  part("before-name").textContent = data.input_format;
  part("after-name").textContent = data.output_format;
  part("before-size").textContent = bytes(data.original_size);
  const less = data.reduction_percent;
  part("after-size").textContent = `${bytes(data.processed_size)}, ${Math.abs(less)} % ${less < 0 ? "larger" : "smaller"}`;
  part("meter").style.transform = `scaleX(${Math.min(1, data.processed_size / data.original_size)})`;
  part("save").download = name;
  part("save").href = URL.createObjectURL(blob);
  shownUrls.push(part("save").href);
  part("facts").textContent = `Converted in ${data.processing_time_ms} ms, ${milliseconds} ms with both ways.`;
  part("warnings").hidden = !data.warnings.length;
  part("warnings").lastElementChild.replaceChildren(...data.warnings.map((one) => Object.assign(document.createElement("li"), { textContent: `${one.message} (${one.code})` })));
  samples(data, quality);
  part("result").hidden = false;
}

async function convert(event) {
  event.preventDefault();
  const quality = part("quality-field").hidden ? null : part("quality").value;
  const form = new FormData();
  form.append("file", file);
  form.append("output_format", part("target").value);
  if (quality !== null) form.append("quality", quality);
  part("convert").disabled = true;
  say("Converting…");
  const begun = performance.now();
  try {
    const { data, meta } = await (await ask("/convert", { method: "POST", body: form, headers: { Accept: "application/json" } })).json();
    const milliseconds = Math.round(performance.now() - begun);
    balance(meta.credits_remaining);
    const blob = await (await ask(`/files/${data.file_id}/download`)).blob();
    show(data, blob, quality, milliseconds);
    say(`Done: ${data.input_format} to ${data.output_format}.`);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    part("result").hidden = true;
    say(error.message, true);
  } finally {
    refresh();
  }
}

part("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, part("key").value.trim());
  part("key").value = "";
  greet();
});
part("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  refresh();
  part("key").focus();
  say("The key is forgotten.");
});
part("file").addEventListener("change", () => choose(part("file").files[0]));
part("options").addEventListener("submit", convert);
part("options").addEventListener("input", refresh);
for (const name of ["dragover", "dragleave", "drop"]) {
  part("drop").addEventListener(name, (event) => {
    event.preventDefault();
    part("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") choose(event.dataTransfer.files[0]);
  });
}
trial.hidden = false;
greet();
