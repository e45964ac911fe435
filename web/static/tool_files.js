// The files of a tool in their order, which buttons and Alt with an arrow key change.

import { create } from "./base.js";
import { _, _n, formatSize } from "./texts.js";

export class FileList {
  constructor(element, page) {
    Object.assign(this, { element, page });
    this.files = [];
    this.isEdited = false; // choosing the same files again is no loss
    element.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
      if (!steps || !event.altKey) return;
      event.preventDefault();
      this.move([...element.children].findIndex((one) => one.contains(event.target)), steps);
    });
  }

  get isReady() {
    const { minimum, maximum } = this.page.given;
    return this.files.length >= minimum && this.files.length <= maximum;
  }

  get problem() {
    const { minimum, maximum } = this.page.given, count = this.files.length;
    if (count && count < minimum) return _("Add {count} more.", { count: minimum - count });
    return count > maximum ? _("At most {maximum} files; remove {count}.", { maximum, count: count - maximum }) : "";
  }

  get cost() {
    return 1;
  }

  get first() {
    return this.files[0];
  }

  get state() {
    return this.files.map(({ name, size, lastModified }) => [name, size, lastModified]);
  }

  async prepare() {
    return { sent: this.files, fields: {} };
  }

  add(files) {
    if (this.page.given.maximum === 1) this.files = files.length ? [files[0]] : this.files;
    else this.files.push(...files);
    this.show();
    if (files.length) this.page.announce(_n("{name}: added.", "{count} files added.", files.length, { name: files[0].name }));
  }

  move(index, steps) {
    const target = index + steps;
    if (index < 0 || target < 0 || target >= this.files.length) return;
    const [file] = this.files.splice(index, 1);
    this.files.splice(target, 0, file);
    this.show();
    this.element.children[target].querySelector("button").focus();
    this.page.announce(_("{name}: {position} of {count}.", { name: file.name, position: target + 1, count: this.files.length }));
    this.page.changed();
  }

  show() {
    this.element.replaceChildren(...this.files.map((file, index) => {
      const row = create("li", { className: "file file-row listed" }), buttons = create("div", { className: "file-buttons" });
      const button = (text, label, action) => {
        const made = create("button", { type: "button", className: "quiet small", textContent: text });
        made.setAttribute("aria-label", label);
        made.addEventListener("click", action);
        buttons.append(made);
      };
      if (this.page.given.maximum > 1) {
        button("↑", _("Move {name} up", { name: file.name }), () => this.move(index, -1));
        button("↓", _("Move {name} down", { name: file.name }), () => this.move(index, 1));
      }
      button("✕", _("Remove {name}", { name: file.name }), () => this.remove(index));
      const text = create("div", { className: "file-text" });
      text.append(create("strong", { className: "file-name", textContent: file.name }), create("span", { className: "small muted", textContent: formatSize(file.size) }));
      row.append(text, buttons);
      return row;
    }));
  }

  remove(index) {
    const [file] = this.files.splice(index, 1);
    this.show();
    (this.element.children[index] ?? this.element.lastElementChild)?.querySelector("button").focus();
    if (!this.files.length) document.getElementById("file").focus();
    this.page.announce(_("{name}: removed.", { name: file.name }));
    this.page.changed();
  }
}
