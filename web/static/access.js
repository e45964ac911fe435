// For whom the page works: the account that is signed in, with its credits, or a visitor with some trial conversions.

import { _, _n } from "./texts.js";

// `limit` is the largest file in bytes, `parallel` the number of conversions at a time, `left` that of conversions.
export class Access {
  constructor(element, changed = () => {}) {
    Object.assign(this, JSON.parse(element.dataset.access), { element, changed });
  }

  // What so many results cost, and how many of them there can be.
  cost(count) {
    if (!count) return "";
    const missing = count <= this.left ? "" : this.left ? ` ${_("Only the first {left} of {count} can be converted.", { left: this.left, count })}` : ` ${_("None can be converted.")}`;
    if (this.signedIn) return `${_n("Costs {count} credit of {left}.", "Costs {count} credits of {left}.", count, { left: this.left })}${missing}`;
    return `${_n("Uses {used} of your {count} trial conversion today.", "Uses {used} of your {count} trial conversions today.", this.left, { used: count })}${missing}`;
  }

  // Shows what a response says: `balance` of the account, or trial conversions in `data`.
  update({ balance, data }) {
    this.left = Math.min(this.left, balance ?? data.trials_remaining ?? this.left); // responses may overtake each other
    this.element.querySelector("strong").textContent = this.signedIn ? _n("{count} credit", "{count} credits", this.left) : _("{left} of {total}", { left: this.left, total: this.trials });
    this.changed();
  }
}

// A key for one request: repeated, it is charged once.
export const newKey = () => [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join("");

// Asks before the page is left while `isBusy()`.
export function guard(isBusy) {
  addEventListener("beforeunload", (event) => { if (isBusy()) event.preventDefault(); });
}

// Calls `take` with files that are dropped anywhere on the page, also in folders, pasted, or chosen.
export function receiveFiles(drop, inputs, take) {
  for (const input of inputs) {
    input.addEventListener("change", () => {
      take([...input.files]);
      input.value = ""; // so that the same file can be chosen again
    });
  }
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, async (event) => {
      if (event.target.type === "file" || !event.dataTransfer?.types.includes("Files")) return; // of an option
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop") take(await droppedFiles(event.dataTransfer));
    });
  }
  document.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files];
    if (files.length) take(files);
  });
}

async function droppedFiles({ items, files }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()); // before the event ends
  if (!entries.some((entry) => entry?.isDirectory)) return [...files];
  return (await Promise.all(entries.filter(Boolean).map(filesOf))).flat();
}

async function filesOf(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => { entry.file(resolve, reject); })];
  const reader = entry.createReader(), found = [];
  for (let some = [true]; some.length;) {
    some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); }); // up to 100 at a time
    found.push(...some);
  }
  return (await Promise.all(found.map(filesOf))).flat();
}
