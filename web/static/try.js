// The try-it form of the landing page: chosen files, options for all of them, and the requests behind the latest result.

import { base } from "./base.js";
import { createComparison } from "./try_compare.js";
import { Access, guard, receiveFiles } from "./access.js";
import { FileEntry, safeName, saving } from "./try_file.js";
import { highlight } from "./highlight.js";
import { _, _n, formatList, formatSize } from "./texts.js";
import { OptionFields, givenOptions } from "./try_options.js";
import { copyMiddle, encodeSample } from "./try_images.js";
import { Queue, RequestError, sendForJson } from "./try_requests.js";
import { createZip } from "./zip.js";

const byId = (id) => document.getElementById(id);
const trial = byId("trial"), effect = byId("effect");
const { catalogue, groups, lossy } = Object.fromEntries(Object.entries(trial.dataset).map(([name, text]) => [name, JSON.parse(text)]));
const { targets, extensions } = catalogue;
const LOSSES = { // said once, of all output formats
  detail: (targets, hasQuality) => {
    const formats = formatList(targets), { length } = targets;
    return hasQuality
      ? _n("{formats} leaves out fine detail, so that files are small; the quality says how much.", "{formats} leave out fine detail, so that files are small; the quality says how much.", length, { formats })
      : _n("{formats} leaves out fine detail, so that files are small.", "{formats} leave out fine detail, so that files are small.", length, { formats });
  },
  structure: (targets) => _("In {formats}, text, vectors, layers or pages become pixels.", { formats: formatList(targets) }),
};
const SAMPLE = 320; // pixels of the part that shows the effect of the quality
const SAMPLED = new Set(["quality", "lossless", "subsampling", "alpha_quality", "palette", "colors", "dither", "effort"]);
const PAUSE = 400; // milliseconds after the last change
const entries = [];
const pairs = new Map(); // promises of pairs of formats by path
const access = new Access(byId("access"), () => page.changed());
const seen = new IntersectionObserver((changes) => {
  for (const { isIntersecting, target } of changes) if (isIntersecting) entries.find(({ element }) => element === target)?.seen();
});
let isChanging = false;
let sampling = new AbortController();
let timer = null;

const page = {
  catalogue,
  groups,
  access,
  allTargets: [...new Set(Object.values(targets).flat())].sort(),
  conversions: new Queue(access.parallel),
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
  // Something has changed that conversions depend on. Many changes are shown at once.
  changed() {
    if (isChanging) return;
    isChanging = true;
    queueMicrotask(() => {
      isChanging = false;
      showOptions();
      showButton();
      showTotals();
    });
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
    seen.unobserve(entry.element);
    entry.element.remove();
    this.changed();
    (entries[index] ?? entries.at(-1))?.part("remove").focus();
    if (!entries.length) byId("file").focus();
    page.announce(_("{name}: removed.", { name: entry.file.name }));
  },
};

function addFiles(files) {
  for (const file of files) {
    const entry = new FileEntry(file, page);
    entries.push(entry);
    byId("files").append(entry.element);
    seen.observe(entry.element);
  }
  page.changed();
  if (files.length) page.announce(_n("{name}: added.", "{count} files added.", files.length, { name: files[0].name }));
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
  const nothing = running ? _("Converting…") : entries.some((entry) => entry.result) ? _("Nothing has changed") : _("Nothing to convert");
  const all = _n("Convert {count} file", "Convert {count} files", pending.length);
  const changed = _n("Convert {count} changed file", "Convert {count} changed files", pending.length);
  const some = _n("Convert {count} new or changed file", "Convert {count} new or changed files", pending.length);
  byId("convert").textContent = !pending.length ? nothing : again === 0 ? all : again === pending.length ? changed : some;
  byId("convert").setAttribute("aria-disabled", String(!pending.length)); // keeps the focus, unlike disabled
  byId("cancel-all").hidden = !running;
  byId("cost").textContent = access.cost(pending.length);
}

// The warnings of all results, each once. What is only information is no alarm.
function showWarnings(results) {
  const found = new Map();
  for (const { result } of results) {
    for (const { code, message } of result.data.warnings) found.set(code, { message, count: (found.get(code)?.count ?? 0) + 1 });
  }
  const alarms = [...found.keys()].filter((code) => !catalogue.information.includes(code));
  byId("warnings").hidden = !found.size || entries.length < 2;
  byId("warnings").firstElementChild.textContent = alarms.length ? _n("Warnings: {count} kind", "Warnings: {count} kinds", alarms.length) : _("Notes");
  byId("warnings").lastElementChild.replaceChildren(...[...found].map(([code, { message, count }]) => Object.assign(document.createElement("li"), { textContent: _n("{count} file: {message}", "{count} files: {message}", count, { message: `${message} (${code})` }) })));
}

function showTotals() {
  const results = entries.filter((entry) => entry.result);
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const before = sum(results.map(({ file }) => file.size)), after = sum(results.map(({ result }) => result.blob.size));
  showWarnings(results);
  byId("totals").hidden = entries.length < 2;
  byId("save-all").hidden = results.length < 2;
  byId("total").textContent = results.length ? `${_n("{count} file", "{count} files", results.length)}: ${formatSize(before)} → ${formatSize(after)}, ${saving(before, after)}${after < before ? `; ${_("{size} saved", { size: formatSize(before - after) })}` : ""}` : "";
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
    const { image, size } = await encodeSample(sample, options, signal);
    if (signal.aborted) return;
    image.alt = _("A part of {name} as {format}", { name: entry.file.name, format: entry.target });
    const captions = [_("original"), _("{format}: this part has {size}", { format: entry.target, size: formatSize(size) })];
    effect.querySelector(".effect-picture").replaceChildren(createComparison(sample, image, { label: _("Original and result"), captions, zoom: false }));
    effect.querySelector(".effect-note").textContent = _("A part of the first image, pixel by pixel. Free of charge.");
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
  byId("requests-title").textContent = _("The API requests for {name}", { name });
  byId("requests").hidden = false;
}

// Shows the targets that a word finds: names, extensions, and what people call them. Selects the only one.
function findTargets() {
  const words = byId("target-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (name) => words.every((word) => [name, ...(extensions[name] ?? []), ...(catalogue.words[name] ?? "").split(" ")].some((one) => one.startsWith(word)));
  const { value } = byId("target");
  byId("target").replaceChildren(new Option(_("suggested for each file"), ""), ...Object.entries(catalogue.groups).map(([label, names]) => {
    const group = Object.assign(document.createElement("optgroup"), { label });
    group.append(...names.filter((name) => isFound(name) || name === value).map((name) => new Option(name, name, name === value, name === value)));
    return group;
  }).filter((group) => group.childElementCount));
  const found = Object.values(catalogue.groups).flat().filter(isFound);
  if (words.length && found.length) chooseTarget(found.find((name) => name === words[0] || extensions[name]?.includes(words[0])) ?? found[0]);
}

function chooseTarget(name) {
  if (byId("target").value === name) return;
  if (![...byId("target").options].some((option) => option.value === name)) byId("target").append(new Option(name, name));
  byId("target").value = name;
  for (const entry of entries) entry.changeTarget();
  page.sampleLater();
  page.changed();
}

findTargets();
byId("target-search").addEventListener("input", findTargets);
byId("target").addEventListener("change", () => {
  for (const entry of entries) entry.changeTarget();
  page.sampleLater();
});
byId("settings").addEventListener("submit", (event) => {
  event.preventDefault();
  const pending = entries.filter((entry) => entry.isPending);
  const some = access.left ? pending.slice(0, access.left) : pending.slice(0, 1); // one shows the error
  for (const entry of some) entry.convert();
});
byId("cancel-all").addEventListener("click", () => {
  for (const entry of entries) entry.controller?.abort();
  byId("convert").focus();
});
byId("remove-all").addEventListener("click", () => {
  for (const entry of [...entries]) entry.remove();
  byId("file").focus();
  page.announce(_("All files are removed."));
});
byId("save-all").addEventListener("click", async () => {
  const archive = await createZip(entries.filter((entry) => entry.result).map((entry) => entry.result));
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(archive), download: "converted.zip" });
  link.click();
  for (const { result } of entries) if (result) result.isSaved = true;
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
});
receiveFiles(byId("drop"), [byId("file"), byId("folder")], addFiles);
guard(() => entries.some(({ controller, isSent, result }) => (access.signedIn ? controller && !isSent : controller || (result && !result.isSaved))));
addEventListener("choose-target", ({ detail }) => chooseTarget(detail));
const wanted = new URLSearchParams(location.search).get("to");
if (page.allTargets.includes(wanted)) chooseTarget(wanted);
trial.hidden = false;
