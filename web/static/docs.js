// Full-text search over the sections of all pages of the docs.

const byId = (id) => document.getElementById(id);
const SECTIONS = "article > section[id], .endpoint";
const sections = [...document.querySelectorAll(SECTIONS)];
const links = [...document.querySelectorAll(".contents-list a")];
const pages = new Set(links.map((link) => link.pathname));
pages.delete(location.pathname);
const texts = new Map(); // by the id of the section
let loading = null;
const isVisible = (element) => !element.hidden;

function read(found) {
  for (const section of found) texts.set(section.id, section.textContent.toLowerCase());
}

async function readPage(path) {
  const response = await fetch(path);
  if (response.ok) read(new DOMParser().parseFromString(await response.text(), "text/html").querySelectorAll(SECTIONS));
}

function describe(here, there, text) {
  if (here + there === 0) return `Nothing found for “${text}”. Try fewer or shorter words.`;
  const found = here + there === 1 ? "1 section found" : `${here + there} sections found`;
  return there === 0 ? `${found}.` : `${found}, ${there} of them on other pages: see the contents.`;
}

function search() {
  loading ??= Promise.allSettled([...pages].map(readPage)).then(search);
  const text = byId("search").value.trim();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = new Set([...texts.keys()].filter((id) => words.every((word) => texts.get(id).includes(word))));
  for (const section of sections) section.hidden = !matches.has(section.id);
  for (const group of document.querySelectorAll("article > section:not([id])")) {
    group.hidden = ![...group.querySelectorAll(".endpoint")].some(isVisible);
  }
  for (const link of links) link.parentElement.hidden = words.length > 0 && !matches.has(link.hash.slice(1));
  for (const group of document.querySelectorAll(".contents-list > div")) {
    group.hidden = ![...group.querySelectorAll("li")].some(isVisible);
  }
  const here = sections.filter(isVisible).length;
  if (words.length && matches.size > here) byId("contents").open = true;
  byId("search-status").hidden = words.length === 0;
  byId("search-status").textContent = words.length ? describe(here, matches.size - here, text) : "";
}

read(sections);
byId("search").addEventListener("input", search);
byId("search-field").hidden = false;
// On a phone, the list of contents would be several screens long.
const wide = matchMedia("(min-width: 62rem)");
const adjust = () => { byId("contents").open = wide.matches; };
wide.addEventListener("change", adjust);
adjust();
// Sections have moved between the pages.
const moved = location.hash && !byId(location.hash.slice(1)) && links.find((link) => link.hash === location.hash);
if (moved) location.replace(moved.href);
