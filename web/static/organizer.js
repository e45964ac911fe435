// Pages of several files as thumbnails, to arrange: dragged, or moved by Alt with an arrow key, turned, repeated, deleted.

import { base, create } from "./base.js";
import { newKey } from "./access.js";
import { _, _n } from "./texts.js";
import { copyMiddle, loadPages, loadPreview } from "./try_images.js";
import { RequestError, createForm, run, sendForJson } from "./try_requests.js";

const CHUNK = 12; // pages of a request for thumbnails
const SHOWN = new Set(["jpg", "jpeg", "png", "webp", "gif", "bmp"]); // images that browsers show, of one page
const BLANK = "a4";
const CLICK = 6; // pixels that a mouse may move in a click
const EDGE = 60; // pixels at the top and at the bottom of the window, where dragging scrolls

export class Organizer {
  constructor(element, page) {
    Object.assign(this, { element, page });
    this.sources = []; // { file, count, isDocument, chunks, converted }
    this.items = new Map(); // by element: { source, number, rotate }; a blank page has no source
    this.isEdited = false;
    this.pending = 0;
    this.queue = Promise.resolve(); // files are added in their order
    this.observer = new IntersectionObserver((changes) => {
      for (const { isIntersecting, target } of changes) if (isIntersecting) this.load(target);
    });
    this.tools = document.getElementById("page-tools");
    this.tools.addEventListener("click", ({ target }) => { if (target.dataset.action) this.apply(target.dataset.action); });
    element.addEventListener("focusin", ({ target }) => { this.focused = target.closest("li"); });
    element.addEventListener("keydown", (event) => this.onKey(event));
    element.addEventListener("pointerdown", (event) => this.onPress(event));
  }

  get order() {
    return [...this.element.children].map((one) => this.items.get(one));
  }

  get isReady() {
    return this.element.childElementCount > 0 && !this.pending && !this.problem;
  }

  get used() {
    return this.sources.filter((source) => this.order.some((item) => item.source === source));
  }

  get problem() {
    const { maximum } = this.page.given, count = this.used.length;
    if (this.pending) return _n("Reading {count} file…", "Reading {count} files…", this.pending);
    return count > maximum ? _("At most {maximum} files; delete the pages of {count}.", { maximum, count: count - maximum }) : "";
  }

  // Documents become PDFs first.
  get cost() {
    return 1 + this.used.filter(({ isDocument, converted }) => isDocument && !converted).length;
  }

  get first() {
    return this.sources[0]?.file;
  }

  get state() {
    return this.order.map(({ source, number, rotate }) => [this.sources.indexOf(source), number, rotate]);
  }

  add(files) {
    this.pending += files.length;
    for (const file of files) this.queue = this.queue.then(() => this.addFile(file));
  }

  async addFile(file) {
    const extension = file.name.split(".").pop().toLowerCase(), { given, password } = this.page;
    const source = { file, extension, isDocument: given.documents.includes(extension), chunks: new Map(), count: 1, password };
    try {
      if (!SHOWN.has(extension)) {
        const form = createForm({ file, output_format: "webp", dry_run: "true", pages: "all", ...(password && { password }) });
        const { data } = await sendForJson(`${base}/try/convert`, { form });
        source.count = data.container === "zip" ? data.file_count : data.pages ?? 1;
      }
      this.sources.push(source);
      for (let number = 1; number <= source.count; number += 1) this.insert({ source, number, rotate: 0 });
      this.page.announce(_n("{name}: {count} page added.", "{name}: {count} pages added.", source.count, { name: file.name }));
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.page.showError(Object.assign(error, { message: `${file.name}: ${error.message}${error.reason === "pdf_encrypted" ? ` ${_("The password is below, in More.")}` : ""}` }));
    }
    this.pending -= 1;
    this.refresh();
  }

  // Adds a page at the end, or after another one.
  insert(item, after = this.element.lastElementChild) {
    const li = create("li", {}), button = create("button", { type: "button", className: "sheet" });
    const frame = create("span", { className: "sheet-image" });
    button.append(frame, create("span", { className: "sheet-name small" }));
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true")));
    li.append(button, create("span", { className: "grip", ariaHidden: "true" }));
    this.items.set(li, item);
    if (after) after.after(li);
    else this.element.append(li);
    frame.style.rotate = `${item.rotate}deg`;
    if (item.source) this.observer.observe(li);
    return li;
  }

  refresh() {
    this.tools.hidden = !this.element.childElementCount;
    for (const [index, li] of [...this.element.children].entries()) {
      const { source, number } = this.items.get(li);
      const file = source?.count > 1 ? _("{name}, page {number}", { name: source.file.name, number }) : source?.file.name;
      li.querySelector(".sheet-name").textContent = `${index + 1}. ${file ?? _("Blank page")}`;
    }
    this.page.changed();
  }

  async load(li) {
    this.observer.unobserve(li);
    const item = this.items.get(li), frame = li.querySelector(".sheet-image");
    if (!item) return;
    try {
      const image = await this.thumbnail(item.source, item.number);
      frame.replaceChildren(copyMiddle(image)); // a page can be shown several times
    } catch {
      frame.textContent = _("No preview");
    }
  }

  async thumbnail(source, number) {
    const { file, password } = source, signal = new AbortController().signal;
    const first = number - (number - 1) % CHUNK, last = Math.min(first + CHUNK - 1, source.count);
    if (!source.chunks.has(first)) {
      const loading = source.count === 1 && !source.isDocument && source.extension !== "pdf"
        ? loadPreview(file, { alt: "", limit: Infinity, password, signal }).then((image) => [image])
        : loadPages(file, first, last, password);
      source.chunks.set(first, loading);
    }
    return (await source.chunks.get(first))[number - first];
  }

  // The selected pages, or else the one with the focus.
  get selected() {
    const chosen = [...this.element.children].filter((li) => li.firstElementChild.getAttribute("aria-pressed") === "true");
    const focused = this.focused?.isConnected ? [this.focused] : [];
    return chosen.length ? chosen : focused;
  }

  apply(action) {
    const pages = this.selected;
    if (!pages.length) return this.page.announce(_("Select a page first."));
    this.isEdited = true;
    if (action === "earlier" || action === "later") return this.move(pages, action === "earlier" ? -1 : 1);
    const next = pages.at(-1).nextElementSibling ?? pages[0].previousElementSibling;
    for (const li of pages) {
      const item = this.items.get(li);
      if (action === "rotate") {
        item.rotate = (item.rotate + 90) % 360;
        li.querySelector(".sheet-image").style.rotate = `${item.rotate}deg`;
      } else if (action === "duplicate") this.insert({ ...item }, li);
      else if (action === "blank") this.insert({ number: 0, rotate: 0 }, li);
      else {
        li.remove();
        this.items.delete(li);
      }
    }
    this.page.announce({ rotate: _("Rotated."), duplicate: _("Duplicated."), blank: _("Blank page inserted."), remove: _("Deleted.") }[action]);
    if (action === "remove") (next?.isConnected ? next.firstElementChild : document.getElementById("file")).focus();
    this.refresh();
  }

  move(pages, steps) {
    const neighbour = steps < 0 ? pages[0].previousElementSibling : pages.at(-1).nextElementSibling;
    if (!neighbour) return;
    const { activeElement } = document;
    if (steps < 0) neighbour.before(...pages);
    else neighbour.after(...pages);
    activeElement.focus();
    const position = [...this.element.children].indexOf(pages[0]) + 1;
    this.isEdited = true;
    this.page.announce(_("Page {position} of {count}.", { position, count: this.element.childElementCount }));
    this.refresh();
  }

  onKey(event) {
    const li = event.target.closest("li");
    const steps = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (event.key === "Delete") return this.apply("remove");
    if (!steps) return;
    event.preventDefault();
    if (event.altKey) return this.move([li], steps);
    const all = [...this.element.children], columns = all.filter((one) => one.offsetTop === all[0].offsetTop).length;
    const distance = ["ArrowUp", "ArrowDown"].includes(event.key) ? columns : 1;
    all[all.indexOf(li) + steps * distance]?.firstElementChild.focus();
  }

  // Drags a page: with a mouse from anywhere, with a finger by its grip, so that the page can be scrolled.
  onPress({ target, button, pointerId, pointerType, clientX, clientY }) {
    const li = target.closest("li"), isGrip = target.className === "grip", pressed = new AbortController();
    if (!li || button || (pointerType === "touch" && !isGrip)) return;
    const onMove = (event) => {
      if (!this.element.hasPointerCapture(pointerId)) {
        if (!isGrip && Math.hypot(event.clientX - clientX, event.clientY - clientY) < CLICK) return;
        this.element.setPointerCapture(pointerId); // li moves, and loses events then
        li.classList.add("dragged");
      }
      if (event.clientY < EDGE) scrollBy(0, -EDGE / 4);
      else if (event.clientY > innerHeight - EDGE) scrollBy(0, EDGE / 4);
      this.moveTo(li, event);
    };
    for (const end of ["pointerup", "pointercancel"]) {
      document.addEventListener(end, () => {
        pressed.abort();
        li.classList.remove("dragged");
      }, pressed);
    }
    this.element.addEventListener("pointermove", onMove, pressed);
  }

  moveTo(li, { clientX, clientY }) {
    const over = document.elementFromPoint(clientX, clientY)?.closest(".sheets > li");
    if (!over || over === li) return;
    const box = over.getBoundingClientRect(), isBefore = clientX < box.left + box.width / 2;
    if (li === (isBefore ? over.previousElementSibling : over.nextElementSibling)) return;
    if (isBefore) over.before(li);
    else over.after(li);
    this.isEdited = true;
    this.refresh();
  }

  // The files and the value of `pages`.
  async prepare({ signal, onWait }) {
    const { used } = this, sent = [];
    for (const source of used) {
      if (source.isDocument && !source.converted) {
        source.key ??= newKey();
        const result = await run(`${base}/try/convert`, { form: createForm({ file: source.file, output_format: "pdf" }), key: source.key, signal, onWait });
        this.page.access.update(result);
        source.converted = new File([result.blob], source.file.name.replace(/\.[^.]*$/, ".pdf"), { type: "application/pdf" });
      }
      sent.push(source.converted ?? source.file);
    }
    const pages = this.order.map(({ source, number, rotate }) => source ? { file: used.indexOf(source), page: number, rotate } : { blank: BLANK, rotate });
    return { sent, fields: { pages: JSON.stringify(pages) } };
  }
}
