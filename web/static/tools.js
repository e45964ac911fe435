// Finds tools by the words of their names, their descriptions and synonyms; and conversions, such as "word to pdf".

import { _ } from "./texts.js";

const byId = (id) => document.getElementById(id);
const list = document.querySelector(".tools"), tools = [...list.querySelectorAll("li:not(#conversion)")];
const { extensions, targets, words: known } = JSON.parse(byId("trial").dataset.catalogue);
const conversion = byId("conversion"), link = conversion.querySelector("a");
let target = "";

const places = Object.keys(known);

// The formats that a word means, the one of that very name first, then those that people use most.
function formatsOf(word) {
  const isNamed = (name) => name === word || extensions[name].includes(word);
  const found = Object.keys(extensions).filter((name) => isNamed(name) || (known[name] ?? "").split(" ").includes(word));
  return found.sort((one, other) => isNamed(other) - isNamed(one) || places.indexOf(one) - places.indexOf(other));
}

function showConversion(query) {
  const [, from, to] = /^\s*(\S+)\s+(?:to|into|as|in|2|→|nach|zu|en|vers|a|para|em|から|を)\s+(\S+)\s*$/.exec(query) ?? [];
  const pairs = from ? formatsOf(from).flatMap((source) => formatsOf(to).map((one) => [source, one])) : [];
  const [source, one] = pairs.find(([before, after]) => targets[before]?.includes(after)) ?? [];
  conversion.hidden = !source;
  target = one ?? "";
  if (source) link.textContent = _("Convert {source} to {target}", { source: source.toUpperCase(), target: target.toUpperCase() });
}

byId("tool-search").addEventListener("input", () => {
  const query = byId("tool-search").value.toLowerCase(), words = query.split(/\s+/).filter(Boolean);
  showConversion(query);
  for (const tool of tools) {
    const text = `${tool.textContent} ${tool.dataset.words}`.toLowerCase();
    tool.hidden = !words.every((word) => text.includes(word));
  }
  const count = list.querySelectorAll("li:not([hidden])").length;
  byId("no-tool").hidden = count > 0;
  byId("tool-status").textContent = words.length ? _("{count} found", { count }) : "";
});
link.addEventListener("click", () => dispatchEvent(new CustomEvent("choose-target", { detail: target })));
byId("tool-search-field").hidden = false;
