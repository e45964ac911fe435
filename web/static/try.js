// The try-it form of the landing page: chosen files, an optional API key, and the requests behind the latest result.

import { FileEntry, safeName } from "./try_file.js";
import { Queue, RequestError, sendForJson } from "./try_requests.js";

const byId = (id) => document.getElementById(id);
const trial = byId("trial");
const { targets, extensions, media, limits } = Object.fromEntries(Object.entries(trial.dataset).map(([name, text]) => [name, JSON.parse(text)]));
const KEY = "convertd_key"; // in the tab's session storage
const entries = [];

const page = {
  catalogue: { targets, extensions, media },
  allTargets: [...new Set(Object.values(targets).flat())].sort(),
  preferred: "webp",
  access: { key: null, limit: limits.trial, inspectionLimit: limits.trial },
  conversions: new Queue(2),
  inspections: new Queue(1),

  formatOf(name) {
    const extension = name.split(".").pop().toLowerCase();
    return Object.keys(extensions).find((format) => format === extension || extensions[format].includes(extension));
  },
  announce(text) {
    byId("message").textContent = text;
  },
  setBalance(credits) {
    byId("balance").textContent = `${credits} ${credits === 1 ? "credit" : "credits"}`;
  },
  setTrialsLeft(left) {
    byId("trials-left").textContent = `${left} of ${limits.trials} conversions left today`;
  },
  finished(entry) {
    fillSamples(entry);
  },
  removed(entry) {
    const index = entries.indexOf(entry);
    entries.splice(index, 1);
    entry.element.remove();
    updateList();
    (entries[index] ?? entries.at(-1))?.part("remove").focus();
    if (!entries.length) byId("file").focus();
    page.announce(`${entry.file.name}: removed.`);
  },
};

function addFiles(files) {
  for (const file of files) {
    const entry = new FileEntry(file, page);
    entries.push(entry);
    byId("files").append(entry.element);
  }
  updateList();
  if (files.length) page.announce(files.length === 1 ? `${files[0].name}: added.` : `${files.length} files added.`);
}

function updateList() {
  byId("all").hidden = entries.length < 2;
  byId("convert-all").textContent = `Convert ${entries.length} files`;
  const common = page.allTargets.filter((name) => entries.some((entry) => entry.targets.includes(name)));
  const chosen = byId("target-of-all").value;
  byId("target-of-all").replaceChildren(new Option("as chosen below", ""), ...common.map((name) => new Option(name, name, false, name === chosen)));
}

// Writes the requests behind the result into the code samples.
function fillSamples({ file, result: { name, data, options } }) {
  const words = { FILE: safeName(file.name), RESULT: name, TARGET: data.output_format, ID: data.file_id ?? "FILE_ID" };
  const fill = (text, values) => text.replace(/\b[A-Z]+\b/g, (word) => values[word] ?? word);
  const shown = options.map(([option, value]) => ({ OPTION: option, VALUE: value.replace(/[^\p{L}\p{N}.,:#…-]/gu, "_") }));
  for (const sample of trial.querySelectorAll("[data-before]")) {
    const { before, option, after } = sample.dataset;
    const lines = option ? shown.map((values) => fill(option, values)) : [];
    sample.querySelector("code").textContent = fill(before, words) + lines.join("") + fill(after, words);
  }
  byId("requests-title").textContent = `The API requests for ${name}`;
  byId("requests").hidden = false;
}

function showAccess() {
  const { key } = page.access;
  byId("without-key").hidden = Boolean(key);
  byId("with-key").hidden = !key;
  byId("key-prefix").textContent = `${(key ?? "").slice(0, 15)}…`;
  byId("balance").textContent = "";
}

// Uses a key, or none. A key that the server refuses is removed.
async function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  page.access = { ...page.access, key, limit: key ? limits.free : limits.trial };
  byId("key-error").textContent = "";
  showAccess();
  if (!key) return;
  try {
    const { data, meta } = await sendForJson("/api/v1/account", { key });
    if (page.access.key !== key) return;
    page.access = { ...page.access, limit: data.max_file_size };
    page.setBalance(meta.credits_remaining);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    if (page.access.key !== key) return;
    if (["invalid_api_key", "key_not_verified"].includes(error.code)) await setKey(null);
    byId("key-entry").open = true;
    byId("key-error").textContent = `${error.message} (${error.reference})`;
  }
}

byId("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  byId("key").value = "";
  await setKey(key);
  byId(page.access.key ? "remove-key" : "key").focus(); // the form has been hidden
  if (page.access.key) page.announce("The API key is used.");
});
byId("remove-key").addEventListener("click", async () => {
  await setKey(null);
  byId("key-entry").open = true;
  byId("key").focus();
  page.announce("The key has been removed.");
});
byId("file").addEventListener("change", () => {
  addFiles([...byId("file").files]);
  byId("file").value = ""; // so that the same file can be chosen again
});
byId("target-of-all").addEventListener("change", () => {
  for (const entry of entries) entry.selectTarget(byId("target-of-all").value);
});
byId("convert-all").addEventListener("click", () => {
  for (const entry of entries) if (!entry.controller) entry.convert();
});
byId("remove-all").addEventListener("click", () => {
  for (const entry of [...entries]) entry.remove();
  byId("file").focus();
  page.announce("All files are removed.");
});
for (const name of ["dragover", "dragleave", "drop"]) {
  trial.addEventListener(name, (event) => {
    event.preventDefault();
    byId("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") addFiles([...event.dataTransfer.files]);
  });
}
trial.hidden = false;
setKey(sessionStorage.getItem(KEY));
