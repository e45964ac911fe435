// The page of a tool: files in their order, options, one request, and its result.

import { base } from "./base.js";
import { Access, guard, newKey, receiveFiles } from "./access.js";
import { Organizer } from "./organizer.js";
import { PagePicker } from "./page_picker.js";
import { _, _n, formatSize } from "./texts.js";
import { FileList } from "./tool_files.js";
import { OptionFields, givenOptions } from "./try_options.js";
import { RequestError, createForm, describeError, isFinal, run, showIn } from "./try_requests.js";

const COMMON = new Set(["password", "sanitize", "filename"]); // options that most tools have
const byId = (id) => document.getElementById(id);
const form = byId("tool");
const given = JSON.parse(form.dataset.given);
const access = new Access(byId("access"), changed);
const isOrganizer = given.documents.length > 0;
const schemas = { ...given.schemas };
if (isOrganizer) delete schemas.pages; // those that are shown
for (const [name, { maximum, hint }] of Object.entries(given.files)) schemas[name] = { "x-file": true, examples: ["file_"], description: hint, maximum };

const labels = (names) => Object.fromEntries(names.map((name) => [name, given.labels[name]]));
const names = Object.keys(schemas);
const options = new OptionFields(byId("options"), {
  prefix: "tool",
  groups: [
    { name: "tool", title: _("Options"), labels: labels(names.filter((name) => !COMMON.has(name))) },
    { name: "more", title: _("More"), labels: labels(names.filter((name) => COMMON.has(name))) },
  ],
  open: ["tool"],
  shown: Infinity,
  changed,
});
const page = { given, access, changed, announce, showError, get password() { return options.values.password; } };
const files = new (isOrganizer ? Organizer : FileList)(byId("files"), page);
let controller = null; // of the running request
let isSent = false; // the server has its files
let done = ""; // what the result was made of
let attempt = {};
let url = null;
let isSaved = true;

function announce(text) {
  byId("message").textContent = text;
}

function showError(error) {
  byId("error").hidden = true;
  if (error) showIn(byId("error"), error);
}

// What a request would be now.
function current() {
  const values = Object.entries(options.values).map(([name, value]) => [name, [value].flat().map((one) => one instanceof File ? [one.name, one.size] : one)]);
  return JSON.stringify([files.state, values]);
}

function changed() {
  const isReady = files.isReady && !controller && current() !== done;
  byId("run").setAttribute("aria-disabled", String(!isReady));
  byId("cost").textContent = files.problem || (isReady ? access.cost(files.cost) : "");
}

async function submit() {
  const { signal } = (controller = new AbortController());
  const state = current();
  if (attempt.state !== state) attempt = { state, key: newKey() };
  showError(null);
  byId("result").hidden = true;
  byId("cancel").hidden = byId("progress").hidden = false;
  byId("progress").removeAttribute("value");
  changed();
  announce(_("Working…"));
  const onUpload = (share) => {
    isSent = share === 1;
    if (isSent) byId("progress").removeAttribute("value");
    else byId("progress").value = share;
  };
  const onWait = (seconds) => {
    isSent = false;
    byId("cost").textContent = _("Too many requests, waiting {seconds} s…", { seconds });
  };
  try {
    const { sent, fields } = await files.prepare({ signal, onWait });
    const body = createForm({ ...givenOptions(options.values, schemas), ...fields });
    for (const file of sent) body.append(given.maximum > 1 ? "files[]" : "file", file, file.name);
    const result = await run(`${base}/try/tools/${given.name}`, { form: body, key: attempt.key, signal, onUpload, onWait });
    done = state;
    access.update(result);
    await showResult(result);
  } catch (error) {
    if (isFinal(error)) attempt = {};
    if (error instanceof RequestError) showError(error);
    else if (!signal.aborted) throw error;
    announce(signal.aborted ? _("Cancelled.") : error.message);
  } finally {
    controller = null;
    isSent = false;
    byId("cancel").hidden = byId("progress").hidden = true;
    changed();
  }
}

async function showResult({ blob, data }) {
  const pages = data.pages ? [_n("{count} page", "{count} pages", data.pages)] : [], count = data.container ? [_n("a ZIP of {count} file", "a ZIP of {count} files", data.file_count)] : [];
  if (url) URL.revokeObjectURL(url);
  url = URL.createObjectURL(blob);
  isSaved = false;
  Object.assign(byId("save"), { href: url, download: data.filename ?? `result.${data.output_format}` });
  byId("result-name").textContent = byId("save").download;
  byId("result-facts").textContent = [formatSize(blob.size), ...pages, ...count].join(", ");
  const notes = [...data.warnings].sort((one, other) => given.information.includes(one.code) - given.information.includes(other.code));
  byId("result-warnings").replaceChildren(...notes.map(({ code, message }) => Object.assign(document.createElement("li"), { textContent: `${message} (${code})`, lang: "en" })));
  byId("result-text").hidden = data.output_format !== "json";
  if (data.output_format === "json") byId("result-text").firstElementChild.textContent = await blob.text();
  byId("result").hidden = false;
  byId("save").focus();
  announce(_("Done: {name}.", { name: byId("save").download }));
}

function add(chosen) {
  const fitting = chosen.filter((file) => file.size <= access.limit);
  const large = chosen.find((file) => file.size > access.limit);
  showError(large ? describeError({ code: "file_too_large", reason: "bytes", message: _("{name} is larger than {mib} MB.", { name: large.name, mib: Math.floor(access.limit / 1048576) }) }) : null);
  files.add(fitting);
  changed();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (byId("run").getAttribute("aria-disabled") === "false") submit();
});
byId("cancel").addEventListener("click", () => {
  controller?.abort();
  byId("run").focus();
});
byId("save").addEventListener("click", () => { isSaved = true; });
options.show(schemas);
for (const name of given.required) if (options.controls[name]) options.controls[name].required = true;
new PagePicker(byId("picker"), options, { first: () => files.first, get password() { return page.password; } });
receiveFiles(byId("drop"), [byId("file")], add);
guard(() => {
  const isKept = access.signedIn && isSent; // the server goes on with what runs, and keeps the results
  return controller ? !isKept : (files.isEdited && current() !== done) || (!access.signedIn && !isSaved);
});
form.hidden = false;
changed();
