// Search in the table of conversions, for example "heic" or "heic to webp".

import { _ } from "./texts.js";

const byId = (id) => document.getElementById(id);
const groups = [...byId("formats-table").tBodies[0].rows].map((row) => ({
  row,
  inputs: [...row.cells[0].querySelectorAll("li")],
  outputs: [...row.cells[1].querySelectorAll("li")],
}));
const aliases = { jpg: "jpeg", tif: "tiff", heif: "heic" };

// Marks the formats whose names start with the word. Returns whether there are any.
function mark(formats, word) {
  let found = false;
  for (const format of formats) {
    const matches = word !== "" && format.textContent.startsWith(word);
    format.classList.toggle("found", matches);
    found ||= matches;
  }
  return found;
}

function search() {
  const words = byId("search").value.toLowerCase().split(/[^a-z0-9]+|\b(?:to|nach|zu|in|en|vers|a|para)\b/).filter(Boolean);
  const [first = "", second = ""] = words.map((word) => aliases[word] ?? word);
  let count = 0;
  for (const { row, inputs, outputs } of groups) {
    const isInput = mark(inputs, first);
    const isOutput = mark(outputs, second || (isInput ? "" : first));
    row.hidden = first !== "" && !(second ? isInput && isOutput : isInput || isOutput);
    count += !row.hidden;
  }
  byId("no-match").hidden = count > 0;
  byId("search-status").textContent = first ? _("{count} of {total} rows match", { count, total: groups.length }) : "";
}

byId("search").addEventListener("input", search);
byId("search-field").hidden = false;
