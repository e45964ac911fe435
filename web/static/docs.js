// Full-text search over the sections of the docs page.

const byId = (id) => document.getElementById(id);
const sections = [...document.querySelectorAll("article > section[id], .endpoint")];
const texts = new Map(sections.map((section) => [section, section.textContent.toLowerCase()]));
const isVisible = (element) => !element.hidden;

function describe(matches, text) {
  if (matches === 0) return `Nothing found for “${text}”. Try fewer or shorter words.`;
  return matches === 1 ? "1 section found." : `${matches} sections found.`;
}

function search() {
  const text = byId("search").value.trim();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let matches = 0;
  for (const section of sections) {
    section.hidden = !words.every((word) => texts.get(section).includes(word));
    matches += !section.hidden;
  }
  for (const group of document.querySelectorAll("article > section:not([id])")) {
    group.hidden = ![...group.querySelectorAll(".endpoint")].some(isVisible);
  }
  for (const group of document.querySelectorAll(".contents-list > div")) {
    const entries = [...group.querySelectorAll("li")];
    for (const entry of entries) entry.hidden = byId(entry.firstChild.hash.slice(1))?.hidden ?? false;
    group.hidden = !entries.some(isVisible);
  }
  byId("search-status").hidden = words.length === 0;
  byId("search-status").textContent = words.length ? describe(matches, text) : "";
}

byId("search").addEventListener("input", search);
byId("search-field").hidden = false;
// On a phone, the list of contents would be several screens long.
const wide = matchMedia("(min-width: 62rem)");
const adjust = () => { byId("contents").open = wide.matches; };
wide.addEventListener("change", adjust);
adjust();
