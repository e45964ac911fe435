// A chosen file of the try-it form: its format, options and previews, its conversion, and the result.

import { OptionFields, isSecret } from "./try_options.js";
import { showNoPicture, showPicture } from "./try_pictures.js";
import { RequestError, createForm, describeError, send, sendForJson } from "./try_requests.js";

const API = "/api/v1";
const LOSSES = {
  detail: "the output format does not keep every detail",
  structure: "text, vectors, layers or pages become pixels",
};
const STATES = { waiting: "Waiting…", uploading: "Uploading…", converting: "Converting…", downloading: "Downloading…" };

const formatSize = (size) => size < 1024 ? `${size} B` : size < 1048576 ? `${(size / 1024).toFixed(1)} kB` : `${(size / 1048576).toFixed(2)} MB`;
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
export const safeName = (name) => name.replace(/[^\p{L}\p{N} ._()-]/gu, "_");

let count = 0;

// One entry of the list. `page` has the catalogue, the access (key and limit), the queue of conversions, and the
// callbacks `announce`, `finished` and `removed`.
export class FileEntry {
  constructor(file, page) {
    this.file = file;
    this.page = page;
    this.controller = null; // of the running conversion
    this.removal = new AbortController();
    this.facts = [];
    this.messages = [];
    this.result = null; // { blob, url, name, data, options }
    this.element = document.getElementById("file-template").content.firstElementChild.cloneNode(true);
    this.id = `file-${++count}`;
    this.options = new OptionFields(this.part("option-list"), this.id);
    this.source = page.formatOf(file.name);
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
    this.part("upload").setAttribute("aria-label", `Upload of ${this.file.name}`);
    this.part("before-size").textContent = formatSize(this.file.size);
    showNoPicture(this.part("after"), "The result appears here");
    this.part("target").addEventListener("change", () => this.selectTarget(this.target));
    this.part("remove").addEventListener("click", () => this.remove());
    this.part("controls").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.controller) this.controller.abort();
      else this.convert();
    });
    this.setSource(this.source);
    this.showBefore();
    this.queueInspection();
  }

  queueInspection() {
    const { signal } = this.removal;
    this.page.inspections.add(() => this.inspect(), signal).catch((error) => { if (!signal.aborted) throw error; });
  }

  get target() {
    return this.part("target").value;
  }

  get targets() {
    return this.page.catalogue.targets[this.source] ?? this.page.allTargets;
  }

  get password() {
    return this.options.controls.password?.value;
  }

  // Sets the input format; undefined if it is not known.
  setSource(source) {
    this.source = source;
    this.part("before-format").textContent = source ?? "unknown format";
    const { preferred } = this.page, { targets } = this;
    const target = targets.includes(preferred) && preferred !== source ? preferred : targets.find((name) => name !== source) ?? targets[0];
    this.part("target").replaceChildren(...targets.map((name) => new Option(name, name, name === target, name === target)));
    this.loadPair();
  }

  selectTarget(target) {
    if (!this.targets.includes(target)) return;
    this.part("target").value = target;
    this.page.preferred = target;
    this.facts = [];
    this.messages = [];
    this.loadPair();
    this.queueInspection();
  }

  // Shows the options and the losses of the pair of formats.
  async loadPair() {
    const pair = `${API}/formats/${this.source}/${this.target}`;
    let conversion = null;
    try {
      if (this.source) conversion = (await sendForJson(pair)).data;
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
    }
    if (this.source && pair !== `${API}/formats/${this.source}/${this.target}`) return; // a later choice is being loaded
    this.losses = conversion?.losses.map((loss) => LOSSES[loss] ?? loss);
    this.options.show(conversion?.options.properties ?? {});
    this.showPassword();
    this.showInspection();
  }

  showBefore() {
    showPicture(this.part("before"), this.file, this.pictureOptions(this.file.name));
  }

  pictureOptions(alt) {
    const { key, limit } = this.page.access;
    return { alt, key, limit, password: this.password, signal: this.removal.signal };
  }

  // Asks the server what the result would be.
  async inspect() {
    const { key, limit, inspectionLimit } = this.page.access, { signal } = this.removal, { target } = this;
    if (this.file.size > Math.min(limit, inspectionLimit)) return;
    const form = createForm({ file: this.file, output_format: target, dry_run: "true", ...this.secrets() });
    try {
      const { data } = await sendForJson(key ? `${API}/convert` : "/try/convert", { form, key, signal });
      if (target !== this.target) return; // another one was chosen, for which an inspection is queued
      this.facts = [...(data.width && data.height ? [`${data.width} × ${data.height} pixels`] : []), ...(data.pages > 1 ? [plural(data.pages, "page")] : [])];
      this.messages = data.warnings.map((warning) => warning.message);
      this.correctSource(data.input_format);
    } catch (error) {
      if (!(error instanceof RequestError)) return; // removed
      this.correctSource(error.details.input_format);
      if (error.reason === "trials") this.page.setTrialsLeft(0);
      if (error.code === "invalid_file_type") this.showError(error); // other errors appear when the file is converted
    }
    this.showInspection();
  }

  correctSource(source) {
    if (!source || source === this.source) return;
    this.setSource(source);
    this.queueInspection();
  }

  secrets() {
    return this.password ? { password: this.password } : {};
  }

  showInspection() {
    const sentences = [];
    if (this.facts.length) sentences.push(`${this.source} to ${this.target}: ${this.facts.join(", ")}.`);
    if (this.losses) sentences.push(this.losses.length ? `To ${this.target}: ${this.losses.join("; ")}.` : `To ${this.target}, nothing is lost.`);
    sentences.push(...this.messages);
    this.part("inspection").textContent = sentences.join(" ");
  }

  // Queues the conversion with the options that are set now.
  async convert() {
    const { signal } = (this.controller = new AbortController());
    const options = this.options.values(), { target } = this;
    this.part("error").hidden = true;
    this.part("times").textContent = "";
    this.setState("waiting");
    this.updateButtons();
    try {
      const { key, limit } = this.page.access;
      if (this.file.size > limit) throw describeError({ code: "file_too_large", reason: "bytes", message: `The file is larger than ${limit / 1048576} MB.` }, Boolean(key));
      await this.page.conversions.add(() => this.run(target, options, key, signal), signal);
      this.setState("done", `Done: ${this.result.data.input_format} to ${this.result.data.output_format}.`);
    } catch (error) {
      if (error instanceof RequestError) this.showError(error);
      else if (!signal.aborted) throw error;
      else if (!this.removal.signal.aborted) this.setState("cancelled", "Cancelled.");
    } finally {
      this.controller = null;
      this.updateButtons();
    }
  }

  // One button converts and cancels, so that it keeps the focus.
  updateButtons() {
    const button = this.part("convert");
    button.textContent = this.controller ? "Cancel" : "Convert";
    button.classList.toggle("quiet", Boolean(this.controller || this.result));
    this.part("save").hidden = !this.result;
  }

  async run(target, options, key, signal) {
    const form = createForm({ output_format: target, ...options, file: this.file });
    const started = performance.now();
    const onUpload = (share) => this.setState(share < 1 ? "uploading" : "converting", undefined, share);
    const onWait = (seconds) => this.setState("waiting", `Too many requests, waiting ${seconds} s…`);
    this.setState("uploading");
    let data, blob;
    if (key) {
      const converted = await sendForJson(`${API}/convert`, { form, key, signal, onUpload, onWait });
      ({ data } = converted);
      this.page.setBalance(converted.meta.credits_remaining);
      this.setState("downloading");
      blob = (await send(`${API}/files/${data.file_id}/download`, { key, signal, onWait })).response;
    } else {
      const response = await send("/try/convert", { form, signal, onUpload, onWait });
      data = JSON.parse(response.getResponseHeader("X-Result"));
      this.page.setTrialsLeft(data.trials_remaining);
      blob = response.response;
    }
    this.showResult(data, blob, options, Math.round(performance.now() - started));
  }

  setState(state, text = STATES[state], share = 0) {
    const bar = this.part("upload");
    bar.hidden = !(state in STATES);
    if (state === "uploading") bar.value = share;
    else bar.removeAttribute("value"); // of unknown length
    this.part("state").textContent = text;
    this.element.dataset.state = state;
    if (!(state in STATES)) this.page.announce(`${this.file.name}: ${text}`);
    else if (state === "waiting") this.page.announce(`${this.file.name}: converting.`);
  }

  showError(error) {
    const box = this.part("error"), link = box.querySelector("a");
    box.hidden = false;
    box.querySelector(".text").textContent = error.message;
    box.querySelector(".reference").textContent = error.reference && `(${error.reference})`;
    link.hidden = !error.link;
    if (error.link) Object.assign(link, { href: error.link.href, textContent: error.link.text });
    if (error.reason === "pdf_encrypted") this.encrypted = true;
    if (error.reason === "trials") this.page.setTrialsLeft(0);
    this.showPassword();
    this.setState("failed", "");
    this.page.announce(`${this.file.name}: ${error.message}`);
  }

  // Shows the password of an encrypted file outside of the list of options.
  showPassword() {
    const control = this.encrypted && this.options.controls.password;
    this.part("password").replaceChildren(...(control ? [control.closest(".field")] : []));
    if (control) control.required = true;
  }

  showResult(data, blob, options, milliseconds) {
    const zipped = data.container === "zip", { catalogue } = this.page;
    if (this.result) URL.revokeObjectURL(this.result.url);
    const stem = this.file.name.replace(/\.[^.]*$/, "") || "file";
    const name = safeName(`${stem}.${zipped ? "zip" : catalogue.extensions[data.output_format]?.[0] ?? data.output_format}`);
    const typed = new Blob([blob], { type: zipped ? "application/zip" : catalogue.media[data.output_format] });
    if (zipped) showNoPicture(this.part("after"), `A ZIP archive of ${plural(data.file_count, "file")}`);
    else showPicture(this.part("after"), typed, this.pictureOptions(name));
    if (this.encrypted) this.showBefore(); // with the password
    this.part("after-format").textContent = data.output_format;
    this.part("after-size").textContent = formatSize(data.processed_size);
    const reduction = data.reduction_percent, change = `${Math.abs(reduction)} % ${reduction < 0 ? "larger" : "smaller"}`;
    const quality = data.quality_used ? ` Quality ${data.quality_used}.` : "";
    this.part("times").textContent = `${change}; ${data.processing_time_ms} ms, with the transfer ${milliseconds} ms.${quality}`;
    const items = data.warnings.map(({ code, message }) => Object.assign(document.createElement("li"), { textContent: `${message} (${code})` }));
    this.part("warnings").hidden = !items.length;
    this.part("warnings").lastElementChild.replaceChildren(...items);
    const url = URL.createObjectURL(typed);
    Object.assign(this.part("save"), { href: url, download: name });
    const shown = Object.entries(options).map(([option, value]) => [option, isSecret(this.options.schemas[option]) ? "…" : value]);
    this.result = { url, name, data, options: shown };
    this.page.finished(this);
  }

  remove() {
    this.controller?.abort();
    this.removal.abort();
    if (this.result) URL.revokeObjectURL(this.result.url);
    this.page.removed(this);
  }
}
