// The try-it form of the landing page: chosen files, options for all of them, and the requests behind the latest result.

import { base } from "./base.js";
import { createComparison } from "./try_compare.js";
import { FileEntry, formatSize, plural, safeName, saving } from "./try_file.js";
import { highlight } from "./highlight.js";
import { OptionFields, givenOptions } from "./try_options.js";
import { copyMiddle, encodeSample } from "./try_images.js";
import { Queue, RequestError, sendForJson } from "./try_requests.js";
import { createZip } from "./zip.js";

const byId = (id) => document.getElementById(id);
const trial = byId("trial"), effect = byId("effect");
const { targets, extensions, media, limits, groups, lossy } = Object.fromEntries(Object.entries(trial.dataset).map(([name, text]) => [name, JSON.parse(text)]));
const KEY = "convertd_key"; // in the tab's session storage
const LOSSES = { // said once, of all output formats
  detail: (targets, hasQuality) => `${targets.join(" and ")} ${targets.length === 1 ? "leaves" : "leave"} out fine detail, so that files are small${hasQuality ? "; the quality says how much" : ""}.`,
  structure: (targets) => `In ${targets.join(" and ")}, text, vectors, layers or pages become pixels.`,
};
const SAMPLE = 320; // pixels of the part that shows the effect of the quality
const SAMPLED = new Set(["quality", "lossless", "subsampling", "alpha_quality", "palette", "colors", "dither", "effort"]);
const PAUSE = 400; // milliseconds after the last change
const entries = [];
const pairs = new Map(); // promises of pairs of formats by path
let trialsLeft = limits.trials;
let balance = null; // credits of the account
let sampling = new AbortController();
let timer = null;

const page = {
  catalogue: { targets, extensions, media },
  groups,
  allTargets: [...new Set(Object.values(targets).flat())].sort(),
  access: { key: null, limit: limits.trial, inspectionLimit: limits.trial },
  conversions: new Queue(2),
  inspections: new Queue(1),
  options: new OptionFields(byId("options"), {
    prefix: "all",
    groups,
    open: matchMedia("(min-width: 46rem)").matches ? ["quality", "size"] : [], // on a phone, the files are not far below
    changed: (name) => {
      for (const entry of entries) entry.own.refresh();
      page.changed();
      if (SAMPLED.has(name)) page.sampleLater();
    },
  }),

  get count() {
    return entries.length;
  },
  get target() {
    return byId("target").value;
  },
  formatOf(name) {
    const extension = name.split(".").pop().toLowerCase();
    return Object.keys(extensions).find((format) => format === extension || extensions[format].includes(extension));
  },
  // Resolves to what the API says about a pair of formats; null if it says nothing.
  loadPair(source, target) {
    const path = `${base}/api/v1/formats/${source}/${target}`;
    if (!pairs.has(path)) {
      pairs.set(path, sendForJson(path).then(({ data }) => data, () => {
        pairs.delete(path);
        return null;
      }));
    }
    return pairs.get(path);
  },
  announce(text) {
    byId("message").textContent = text;
  },
  setBalance(credits) {
    balance = credits;
    byId("balance").textContent = plural(credits, "credit");
  },
  setTrialsLeft(left) {
    trialsLeft = left;
    byId("trials-left").textContent = `${left} of ${limits.trials} conversions left today`;
  },
  // Something has changed that conversions depend on.
  changed() {
    showOptions();
    showButton();
    showTotals();
  },
  imageLoaded() {
    if (effect.hidden) this.sampleLater();
  },
  sampleLater() {
    clearTimeout(timer);
    sampling.abort();
    timer = setTimeout(showSample, PAUSE);
  },
  finished(entry) {
    fillSamples(entry);
    showTotals();
  },
  removed(entry) {
    const index = entries.indexOf(entry);
    entries.splice(index, 1);
    entry.element.remove();
    this.changed();
    (entries[index] ?? entries.at(-1))?.part("remove").focus();
    if (!entries.length) byId("file").focus();
    page.announce(`${entry.file.name}: removed.`);
  },
};

function addFiles(files) {
  const isFirst = !entries.length;
  const known = [...files].map(({ name }) => page.formatOf(name)).filter(Boolean);
  if (isFirst && known.length && known.every((format) => format === page.target)) byId("target").value = targets[known[0]].find((name) => name !== known[0]);
  for (const file of files) {
    const entry = new FileEntry(file, page);
    entries.push(entry);
    byId("files").append(entry.element);
  }
  page.changed();
  if (files.length) page.announce(files.length === 1 ? `${files[0].name}: added.` : `${files.length} files added.`);
}

// The options that some of the files have.
function showOptions() {
  byId("settings").hidden = !entries.length;
  const schemas = Object.assign({}, ...entries.map((entry) => entry.schemas).reverse());
  const isSame = Object.keys(schemas).join() === Object.keys(page.options.schemas).join() && Object.keys(schemas).every((name) => schemas[name] === page.options.schemas[name]);
  if (!isSame) {
    page.options.show(schemas);
    (byId("options").querySelector('[data-name="quality"]') ?? byId("settings")).append(effect);
    page.sampleLater();
  }
  const describe = (loss) => {
    const losing = entries.filter((entry) => entry.losses.includes(loss));
    return LOSSES[loss]?.([...new Set(losing.map(({ target }) => target))], losing.every((entry) => entry.schemas.quality)) ?? loss;
  };
  byId("losses").textContent = [...new Set(entries.flatMap((entry) => entry.losses))].map(describe).join(" ");
}

// The button says what it will do, and what that costs.
function showButton() {
  const pending = entries.filter((entry) => entry.isPending), running = entries.some((entry) => entry.controller);
  const again = pending.filter((entry) => entry.result).length;
  const kind = again === 0 ? "" : again === pending.length ? "changed " : "new or changed ";
  const nothing = running ? "Converting…" : entries.some((entry) => entry.result) ? "Nothing has changed" : "Nothing to convert";
  byId("convert").textContent = pending.length ? `Convert ${plural(pending.length, `${kind}file`)}` : nothing;
  byId("convert").setAttribute("aria-disabled", String(!pending.length)); // keeps the focus, unlike disabled
  byId("cancel-all").hidden = !running;
  const cost = page.access.key ? `Costs ${plural(pending.length, "credit")}${balance === null ? "" : ` of ${balance}`}.` : `Uses ${pending.length} of your ${plural(trialsLeft, "trial conversion")} of today.`;
  byId("cost").textContent = pending.length ? cost : "";
}

function showTotals() {
  const results = entries.filter((entry) => entry.result);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const before = sum(results.map(({ file }) => file.size)), after = sum(results.map(({ result }) => result.blob.size));
  byId("totals").hidden = entries.length < 2;
  byId("save-all").hidden = results.length < 2;
  byId("total").textContent = results.length ? `${plural(results.length, "file")}: ${formatSize(before)} → ${formatSize(after)}, ${saving(before, after)}${after < before ? `; ${formatSize(before - after)} saved` : ""}` : "";
}

// Shows what the quality does to a part of the first image. The server makes it, free of charge.
async function showSample() {
  const entry = entries.find(({ image, target }) => image && lossy.includes(target));
  effect.hidden ||= !entry?.schemas.quality;
  if (!entry?.schemas.quality) return;
  sampling.abort();
  const { signal } = (sampling = new AbortController());
  const values = Object.fromEntries(Object.entries(page.options.values).filter(([name]) => SAMPLED.has(name)));
  try {
    const sample = copyMiddle(entry.image, SAMPLE);
    const options = { output_format: entry.target, ...givenOptions(values, entry.schemas) };
    const { image, size } = await encodeSample(sample, options, { key: page.access.key, signal });
    if (signal.aborted) return;
    image.alt = `A part of ${entry.file.name} as ${entry.target}`;
    const captions = ["original", `${entry.target}: this part has ${formatSize(size)}`];
    effect.querySelector(".effect-picture").replaceChildren(createComparison(sample, image, { label: "Original and result", captions, zoom: false }));
    effect.querySelector(".effect-note").textContent = "A part of the first image, pixel by pixel. Free of charge.";
    effect.hidden = false;
  } catch (error) {
    if (signal.aborted || !(error instanceof RequestError)) return;
    effect.hidden = false;
    effect.querySelector(".effect-picture").replaceChildren();
    effect.querySelector(".effect-note").textContent = error.message;
  }
}

// Writes the requests behind the result into the code samples.
function fillSamples({ file, result: { name, data, options } }) {
  const words = { FILE: safeName(file.name), RESULT: name, TARGET: data.output_format, ID: data.file_id ?? "FILE_ID" };
  const fill = (text, values) => text.replace(/\b[A-Z]+\b/g, (word) => values[word] ?? word);
  const shown = options.map(([option, value]) => ({ OPTION: option, VALUE: value.replace(/[^\p{L}\p{N}.,:#…%-]/gu, "_") }));
  for (const sample of trial.querySelectorAll("[data-before]")) {
    const { before, option, after } = sample.dataset;
    const lines = option ? shown.map((values) => fill(option, values)) : [];
    const code = sample.querySelector("code");
    code.textContent = fill(before, words) + lines.join("") + fill(after, words);
    highlight(code);
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
  balance = null;
  showButton();
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
    const { data, meta } = await sendForJson(`${base}/api/v1/account`, { key });
    if (page.access.key !== key) return;
    page.access = { ...page.access, limit: data.max_file_size };
    page.setBalance(meta.credits_remaining);
    showButton();
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
byId("target").append(...page.allTargets.map((name) => new Option(name, name, name === "webp", name === "webp")));
byId("target").addEventListener("change", () => {
  for (const entry of entries) entry.changeTarget();
  page.sampleLater();
});
byId("settings").addEventListener("submit", (event) => {
  event.preventDefault();
  for (const entry of entries) if (entry.isPending) entry.convert();
});
byId("cancel-all").addEventListener("click", () => {
  for (const entry of entries) entry.controller?.abort();
  byId("convert").focus();
});
byId("remove-all").addEventListener("click", () => {
  for (const entry of [...entries]) entry.remove();
  byId("file").focus();
  page.announce("All files are removed.");
});
byId("save-all").addEventListener("click", async () => {
  const archive = await createZip(entries.filter((entry) => entry.result).map((entry) => entry.result));
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(archive), download: "converted.zip" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
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
