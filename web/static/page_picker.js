// Chooses a place on the image of a page, for options that are a box, several boxes, or a position.

import { base, create } from "./base.js";
import { createCropper } from "./try_compare.js";
import { copyMiddle, loadPage } from "./try_images.js";
import { _ } from "./texts.js";
import { RequestError, createForm, sendForJson } from "./try_requests.js";

const ROWS = [["northwest", "north", "northeast"], ["west", "center", "east"], ["southwest", "south", "southeast"]];
const rounded = (points) => Math.round(points * 10) / 10;

export class PagePicker {
  // `source` has the first file, `first()`, and its password.
  constructor(container, options, source) {
    Object.assign(this, { container, options, source });
    for (const name of ["box", "boxes", "position"]) {
      const control = options.controls[name];
      if (!control) continue;
      const button = create("button", { type: "button", className: "quiet small choose", textContent: _("Choose on the page") });
      button.setAttribute("aria-label", _("Choose {name} on the page", { name: control.labels[0].textContent }));
      button.addEventListener("click", () => this.open(name, Number(options.values.page ?? 1)));
      control.after(button);
    }
  }

  // Shows a page of the first file.
  async open(name, number) {
    const file = this.source.first(), { password } = this.source;
    const status = create("p", { className: "muted small", textContent: file ? _("Loading the page…") : _("Choose a file first.") });
    this.container.hidden = false;
    this.container.replaceChildren(status);
    if (!file) return;
    const page = create("input", { type: "number", min: 1, value: number, id: "picker-page" });
    const row = create("label", { className: "field brief", htmlFor: "picker-page", textContent: _("Page") });
    row.append(page);
    page.addEventListener("change", () => this.open(name, Math.max(1, Number(page.value) || 1)));
    const close = create("button", { type: "button", className: "quiet small", textContent: _("Close") });
    close.addEventListener("click", () => { this.container.hidden = true; });
    try {
      const form = createForm({ file, output_format: "png", dry_run: "true", dpi: 72, pages: number, ...(password && { password }) }); // points are pixels
      const [{ data }, image] = await Promise.all([sendForJson(`${base}/try/convert`, { form }), loadPage(file, number, password)]);
      if (name !== "boxes" && this.options.controls.page) this.options.set("page", String(number));
      this.container.replaceChildren(row, this.createChoice(name, number, image, data), close);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      status.textContent = error.message;
      this.container.append(row, close);
    }
  }

  createChoice(name, number, image, { width, height }) {
    const canvas = copyMiddle(image);
    if (name === "position") return this.createPosition(canvas);
    const box = ([x, y, w, h]) => [x * width, y * height, w * width, h * height].map(rounded);
    const set = (value) => {
      this.options.set(name, value);
      this.options.controls[name].dispatchEvent(new Event("input", { bubbles: true }));
    };
    const areas = () => JSON.parse(this.options.values.boxes ?? "[]");
    const draw = (area) => {
      const [sx, sy] = [canvas.width / width, canvas.height / height];
      canvas.getContext("2d").fillRect(area.x * sx, area.y * sy, area.width * sx, area.height * sy);
    };
    let last = null;
    const texts = { hint: _("Drag on the page to choose a part."), describe: (sides) => _("{box} points", { box: box(sides).join(", ") }), reset: _("Clear") };
    const figure = createCropper(canvas, "", (text) => {
      last = text ? box(text.split(",").map((side) => parseFloat(side) / 100)) : null;
      if (name === "box") set(last ? last.join(",") : "");
    }, texts);
    if (name === "boxes") {
      areas().filter(({ page }) => page === number).forEach(draw);
      const add = create("button", { type: "button", className: "small", textContent: _("Add this area") });
      add.addEventListener("click", () => {
        if (!last) return;
        const [x, y, w, h] = last, area = { page: number, x, y, width: w, height: h };
        set(JSON.stringify([...areas(), area]));
        draw(area);
        figure.querySelector("figcaption button").click();
      });
      figure.append(add);
    }
    return figure;
  }

  createPosition(canvas) {
    const grid = create("div", { className: "pair positions" });
    grid.style.setProperty("--ratio", canvas.width / canvas.height);
    grid.append(canvas, ...ROWS.flat().map((place) => {
      const button = create("button", { type: "button", className: "quiet" });
      button.setAttribute("aria-label", place);
      button.setAttribute("aria-pressed", String(this.options.controls.position.value === place));
      button.addEventListener("click", () => {
        this.options.set("position", place);
        this.options.controls.position.dispatchEvent(new Event("input", { bubbles: true }));
        for (const other of grid.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      });
      return button;
    }));
    return grid;
  }
}
