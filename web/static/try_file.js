// A chosen file of the try-it form: its format, its own options, its conversion, and the result.

import { base } from "./base.js";
import { createComparison, createCropper } from "./try_compare.js";
import { OptionFields, givenOptions, isSecret } from "./try_options.js";
import { copyMiddle, loadPreview, showImage } from "./try_images.js";
import { newKey } from "./access.js";
import { _, _n, formatPercent, formatSize } from "./texts.js";
import { RequestError, createForm, describeError, isFinal, run, sendForJson, showIn } from "./try_requests.js";

const STATES = { waiting: _("Waiting…"), uploading: _("Uploading…"), converting: _("Converting…") };
const HEAD = 65536; // bytes at the beginning of a large file that show its format
const LARGE = 1 << 20; // bytes of a file whose format is found before it is sent
const OPENED = 3; // files of which errors and results are shown in whole

export function saving(before, after) {
  const share = formatPercent(Math.abs(1 - after / before));
  return after > before ? _("{share} larger", { share }) : _("{share} smaller", { share });
}
export const safeName = (name) => name.replace(/[^\p{L}\p{N} ._()-]/gu, "_");

let count = 0;

// One entry of the list. `page` has the catalogue, the access, the queues of requests, the options of all files, and the callbacks `announce`, `changed`, `finished` and `removed`.
export class FileEntry {
  constructor(file, page) {
    this.file = file;
    this.page = page;
    this.controller = null; // of the running conversion
    this.isSent = false; // the server has its file
    this.removal = new AbortController();
    this.facts = [];
    this.messages = [];
    this.schemas = {}; // of the options of the pair of formats
    this.losses = [];
    this.image = null; // the image of the file, once it has been loaded
    this.isRefused = false; // no format matches the content
    this.result = null; // { blob, url, name, data, options, request }
    this.isSeen = false; // only then, images and inspections are worth their requests
    this.attempt = {}; // the request that was sent last, and its key
    this.element = document.getElementById("file-template").content.firstElementChild.cloneNode(true);
    this.id = `file-${++count}`;
    this.source = page.formatOf(file.name);
    this.own = new OptionFields(this.part("own-options"), {
      prefix: this.id,
      groups: page.groups,
      open: ["size"],
      changed: () => this.page.changed(),
      base: () => page.options.values,
    });
    this.build();
  }

  part(name) {
    return this.element.querySelector(`.${name}`);
  }

  build() {
    const name = this.part("file-name");
    name.textContent = this.file.name;
    name.id = `${this.id}-name`;
    this.part("file").setAttribute("aria-labelledby", name.id);
    this.part("upload").setAttribute("aria-label", _("Upload of {name}", { name: this.file.name }));
    for (const [part, action] of [["remove", "remove"], ["cancel", "cancel"], ["compare", "toggleComparison"], ["crop", "toggleCropper"], ["more", "togglePanel"]]) {
      this.part(part).addEventListener("click", () => this[action]());
    }
    this.part("save").addEventListener("click", () => { this.result.isSaved = true; });
    this.part("own-target").addEventListener("change", () => this.changeTarget());
    this.part("password").addEventListener("input", () => {
      this.own.set("password", this.part("password").value);
      this.page.changed();
    });
    this.part("more").setAttribute("aria-label", _("Options for {name}", { name: this.file.name }));
    this.identified = Promise.resolve();
    this.setSource(this.source);
    const { limit } = this.page.access;
    if (this.file.size > limit) this.refuse(describeError({ code: "file_too_large", reason: "bytes", message: _("The file is larger than {mib} MB.", { mib: Math.floor(limit / 1048576) }) }));
    else if (!this.source) this.seen(); // its format decides what it can become
  }

  // The visitor has scrolled to the file.
  seen() {
    if (this.isSeen || this.isRefused) return;
    this.isSeen = true;
    this.identified = this.identify();
    this.showBefore();
    this.queueInspection();
  }

  get targets() {
    return this.page.catalogue.targets[this.source] ?? this.page.allTargets;
  }

  // The format to convert to; undefined if the file does not convert to that of all files.
  get target() {
    const common = this.page.target || this.page.catalogue.suggested[this.source];
    return this.part("own-target").value || (this.targets.includes(common) ? common : undefined);
  }

  // A document that becomes images has all its pages, unless the visitor chooses some.
  get options() {
    const pages = this.page.catalogue.documents.includes(this.source) ? { pages: "all" } : {};
    return givenOptions({ ...pages, ...this.page.options.values, ...this.own.values }, this.schemas);
  }

  // What a conversion would be now. The result of an equal one is there already.
  get request() {
    const given = Object.entries(this.options).map(([name, value]) => [name, value instanceof File ? [value.name, value.size, value.lastModified] : value]);
    return JSON.stringify([this.target, given.sort()]);
  }

  get isPending() {
    return !this.controller && !this.isRefused && this.target !== undefined && this.result?.request !== this.request;
  }

  // Sets the input format; undefined if it is not known.
  setSource(source) {
    this.source = source;
    const chosen = this.part("own-target").value;
    this.part("own-target").replaceChildren(new Option(_("as all files"), ""), ...this.targets.map((name) => new Option(name, name, false, name === chosen)));
    this.paired = this.loadPair();
  }

  // The visitor or the page has chosen another format.
  changeTarget() {
    this.facts = [];
    this.messages = [];
    this.paired = this.loadPair();
    if (this.page.count <= OPENED && this.isSeen) this.queueInspection();
  }

  // Loads the options and the losses of the pair of formats.
  async loadPair() {
    const { source, target } = this;
    const pair = source && target ? await this.page.loadPair(source, target) : null;
    if (source !== this.source || target !== this.target || this.removal.signal.aborted) return; // a later choice is being loaded
    this.losses = pair?.losses ?? [];
    this.schemas = pair?.options.properties ?? {};
    if (!this.part("panel").hidden) this.own.show(this.schemas);
    this.showFacts();
    this.page.changed();
  }

  async showBefore() {
    await this.identified;
    if (this.isRefused) return;
    this.image = await showImage(this.part("before"), this.file, this.imageOptions(this.file.name));
    this.part("crop").hidden = !this.image;
    if (this.image) this.page.imageLoaded();
  }

  imageOptions(alt) {
    return { alt, limit: this.page.access.limit, password: this.options.password, signal: this.removal.signal };
  }

  // Identifies a large file by its beginning, before any of it is sent in whole.
  async identify() {
    if (this.file.size <= LARGE) return; // an inspection finds it
    const head = new File([this.file.slice(0, HEAD)], this.file.name);
    try {
      const { data } = await sendForJson(`${base}/try/identify`, { form: createForm({ file: head }), signal: this.removal.signal });
      if (data.input_format && data.input_format !== this.source) this.setSource(data.input_format);
    } catch (error) {
      if (error.code === "invalid_file_type") this.refuse(error);
    }
  }

  queueInspection() {
    const { signal } = this.removal;
    this.page.inspections.add(() => this.inspect(), signal).catch((error) => { if (!signal.aborted) throw error; });
  }

  // Asks the server what the result would be.
  async inspect() {
    await this.identified;
    await this.paired; // which options there are
    if (this.isRefused) return;
    const { signal } = this.removal, target = this.target ?? (this.source ? undefined : "pdf");
    if (this.file.size > this.page.access.inspectionLimit || !target) return;
    const { password, pages } = this.options;
    const isCurrent = () => (target === this.target || !this.target) && password === this.options.password;
    const form = createForm({ output_format: target, dry_run: "true", ...(password && { password }), ...(pages && { pages }), file: this.file });
    try {
      const { data } = await sendForJson(`${base}/try/convert`, { form, signal });
      if (!isCurrent()) return; // for another format, an inspection is queued
      this.facts = [...(data.width && data.height ? [_("{width} × {height} pixels", { width: String(data.width), height: String(data.height) })] : []), ...(data.pages > 1 ? [_n("{count} page", "{count} pages", data.pages)] : []), ...(data.file_count > 1 ? [_("A ZIP of {count} images", { count: data.file_count })] : [])];
      this.messages = data.warnings.map((warning) => warning.message);
      this.correctSource(data.input_format);
    } catch (error) {
      if (!(error instanceof RequestError) || !isCurrent()) return; // removed, or the password has been entered since
      this.correctSource(error.details.input_format);
      if (error.reason === "trials") this.page.access.update({ data: { trials_remaining: 0 } });
      if (error.reason === "pdf_encrypted") this.showError(error);
      if (error.code === "invalid_file_type" && error.reason !== "pdf_encrypted") this.refuse(error); // other errors appear when the file is converted
    }
    this.showFacts();
  }

  correctSource(source) {
    if (!source || source === this.source) return;
    this.setSource(source);
    this.queueInspection();
  }

  refuse(error) {
    this.isRefused = true;
    this.showError(error);
    this.showFacts();
    this.page.changed();
  }

  showFacts() {
    const { source, target, result } = this;
    const before = `${source ?? _("unknown format")}, ${formatSize(this.file.size)}`;
    const after = result ? `${result.data.output_format}, ${formatSize(result.data.processed_size)}, ${saving(this.file.size, result.data.processed_size)}` : target;
    this.part("sizes").textContent = `${before} → ${after ?? "?"}`;
    const missing = target || this.isRefused ? [] : [_("{source} does not convert to {target}. Choose another format for this file.", { source, target: this.page.target })];
    this.part("inspection").textContent = [...missing, ...this.facts.map((fact) => `${fact}.`), ...(result ? [] : this.messages)].join(" ");
    if (missing.length) this.openPanel();
    this.part("own").hidden = this.isRefused;
  }

  // Queues the conversion with the options that are set now.
  async convert() {
    const { signal } = (this.controller = new AbortController());
    const { target, options, request } = this;
    this.isSent = false;
    this.part("error").hidden = true;
    this.part("cancel").hidden = false;
    this.setState("waiting");
    this.page.changed();
    try {
      await this.page.conversions.add(() => this.run(target, options, request, signal), signal);
      this.setState("done", _("Done: {source} to {target}.", { source: this.result.data.input_format, target: this.result.data.output_format }));
    } catch (error) {
      if (isFinal(error)) this.attempt = {};
      if (error instanceof RequestError) this.showError(error);
      else if (!signal.aborted) throw error;
      else if (!this.removal.signal.aborted) this.setState("cancelled", _("Cancelled."));
    } finally {
      this.controller = null;
      this.part("cancel").hidden = true;
      this.page.changed();
    }
  }

  cancel() {
    this.controller?.abort();
    this.part("remove").focus(); // the button has gone
  }

  async run(target, options, request, signal) {
    if (this.attempt.request !== request) this.attempt = { request, key: newKey() };
    const form = createForm({ output_format: target, ...options, file: this.file });
    const onUpload = (share) => {
      this.isSent = share === 1;
      this.setState(this.isSent ? "converting" : "uploading", undefined, share);
    };
    const onWait = (seconds) => {
      this.isSent = false;
      this.setState("waiting", _("Too many requests, waiting {seconds} s…", { seconds }));
    };
    this.setState("uploading");
    const result = await run(`${base}/try/convert`, { form, key: this.attempt.key, signal, onUpload, onWait });
    this.page.access.update(result);
    this.showResult(result.data, result.blob, options, request);
  }

  setState(state, text = STATES[state], share = 0) {
    const bar = this.part("upload");
    bar.hidden = state !== "uploading" && state !== "converting"; // those of many files that wait would take the time of a core
    if (state === "uploading") bar.value = share;
    else bar.removeAttribute("value"); // of unknown length
    this.part("state").textContent = text;
    this.element.dataset.state = state;
    this.part("state").title = text;
    if (!(state in STATES) && state !== "failed") this.page.announce(`${this.file.name}: ${text}`);
    else if (state === "waiting") this.page.announce(_("{name}: converting.", { name: this.file.name }));
  }

  showError(error) {
    showIn(this.part("error"), error);
    if (error.reason === "pdf_encrypted") this.part("password-field").hidden = false;
    if (error.reason === "trials") this.page.access.update({ data: { trials_remaining: 0 } });
    if (this.page.count <= OPENED || error.reason === "pdf_encrypted") this.openPanel();
    this.setState("failed", error.message);
    this.page.announce(`${this.file.name}: ${error.message}`);
  }

  showResult(data, blob, options, request) {
    const zipped = data.container === "zip", { catalogue } = this.page;
    if (this.result) URL.revokeObjectURL(this.result.url);
    const stem = this.file.name.replace(/\.[^.]*$/, "") || "file";
    const name = safeName(`${stem}.${zipped ? "zip" : catalogue.extensions[data.output_format]?.[0] ?? data.output_format}`);
    const typed = new Blob([blob], { type: zipped ? "application/zip" : catalogue.media[data.output_format] });
    const textOf = (option, value) => isSecret(this.schemas[option]) ? "…" : value instanceof File ? "FILE_ID" : value;
    const shown = Object.entries(options).map(([option, value]) => [option, textOf(option, value)]);
    const url = URL.createObjectURL(typed);
    this.result = { blob: typed, url, name, data, request, options: shown };
    Object.assign(this.part("save"), { href: url, download: name, hidden: false });
    const files = zipped ? [_n("A ZIP archive of {count} file.", "A ZIP archive of {count} files.", data.file_count)] : [];
    const quality = data.quality_used ? [_("Quality {number}.", { number: data.quality_used })] : [];
    this.part("times").textContent = [...files, ...quality].join(" ");
    const items = data.warnings.map(({ code, message }) => Object.assign(document.createElement("li"), { textContent: `${message} (${code})`, lang: "en" }));
    this.part("warnings").hidden = !items.length;
    this.part("warnings").lastElementChild.replaceChildren(...items);
    const alarms = data.warnings.filter(({ code }) => !this.page.catalogue.information.includes(code)).length;
    this.part("flag").textContent = alarms ? _n("{count} warning", "{count} warnings", alarms) : "";
    this.showFacts();
    if (options.password) this.showBefore();
    this.part("compare").hidden = zipped;
    const isOpen = !this.part("view").hidden || this.page.count === 1;
    this.closeView();
    if (this.page.count === 1) this.openPanel();
    if (isOpen && !zipped) this.toggleComparison();
    this.page.finished(this);
  }

  openPanel() {
    if (!this.part("panel").hidden) return;
    this.part("panel").hidden = false;
    this.part("more").setAttribute("aria-expanded", "true");
    this.own.show(this.schemas);
  }

  togglePanel() {
    if (this.part("panel").hidden) return this.openPanel();
    this.part("panel").hidden = true;
    this.part("more").setAttribute("aria-expanded", "false");
  }

  closeView() {
    this.part("view").hidden = true;
    this.part("view").replaceChildren();
    for (const part of ["compare", "crop"]) this.part(part).setAttribute("aria-expanded", "false");
  }

  // Shows the file and its result under one slider, or hides them.
  async toggleComparison() {
    const isOpen = this.part("compare").getAttribute("aria-expanded") === "true", { result, file } = this;
    this.closeView();
    if (isOpen) return;
    this.part("compare").setAttribute("aria-expanded", "true");
    try {
      const images = await Promise.all([[file, file.name], [result.blob, result.name]].map(([blob, name]) => loadPreview(blob, this.imageOptions(name))));
      if (result !== this.result) return;
      const captions = [_("before: {size}", { size: formatSize(file.size) }), _("after: {size}, {change}", { size: formatSize(result.blob.size), change: saving(file.size, result.blob.size) })];
      this.part("view").replaceChildren(createComparison(...images, { label: _("Before and after of {name}", { name: file.name }), captions, zoom: !images[1].isPreview }));
      this.part("view").hidden = false;
    } catch {
      if (!this.removal.signal.aborted) this.part("compare").hidden = true; // one of them is no image
    }
  }

  // Shows the image, on which a part can be chosen, or hides it.
  toggleCropper() {
    const isOpen = this.part("crop").getAttribute("aria-expanded") === "true";
    this.closeView();
    if (isOpen) return;
    const cropper = createCropper(copyMiddle(this.image), this.options.crop ?? "", (crop) => {
      this.own.set("crop", crop);
      this.page.changed();
    });
    this.part("crop").setAttribute("aria-expanded", "true");
    this.part("view").replaceChildren(cropper);
    this.part("view").hidden = false;
  }

  remove() {
    this.controller?.abort();
    this.removal.abort();
    if (this.result) URL.revokeObjectURL(this.result.url);
    this.page.removed(this);
  }
}
