// The docs: search over all pages, contents that show where the reader is, and entries that open when they are named.

import { base } from "./base.js";

const byId = (id) => document.getElementById(id);
const IGNORED = new Set("a an and do for from how i in is my of on the to with".split(" "));
const article = document.querySelector("article");
const wide = matchMedia("(min-width: 62rem)");
let index = null; // [page path, page title, anchor, title, text][]

async function loadIndex() {
  index ??= fetch(`${base}/docs/index.json`).then((response) => (response.ok ? response.json() : []));
  return index;
}

// The words to look for, without an s of the plural. Numbers, as in "under 200 kB", say nothing about the subject.
function wordsOf(text) {
  const stem = (word) => word.replace(/^\d+(?=[a-z])/, "").replace(/(?<=...[^s])s$/, "");
  const words = text.toLowerCase().split(/[\s,;:"'()]+/).map(stem).filter(Boolean);
  const telling = words.filter((word) => !IGNORED.has(word) && !/^\d+$/.test(word));
  return telling.length ? telling : words;
}

function pattern(words) {
  return new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "i");
}

// Appends the text, with the words marked.
function appendMarked(element, text, words) {
  text.split(pattern(words)).forEach((part, place) => {
    element.append(place % 2 ? Object.assign(document.createElement("mark"), { textContent: part }) : part);
  });
}

// The part of the text around the first word that is found.
function excerpt(text, words) {
  const start = Math.max(0, text.search(pattern(words)) - 60);
  return `${start ? "…" : ""}${text.slice(start, start + 180)}${start + 180 < text.length ? "…" : ""}`;
}

// Entries that have all the words, those first whose titles have them.
function find(entries, words) {
  const rank = ([, , id, title, text]) => {
    const places = [`${title} ${id}`.toLowerCase(), text.toLowerCase()];
    if (!words.every((word) => places.some((place) => place.includes(word)))) return 0;
    return 1 + words.filter((word) => places[0].includes(word)).length + (text.includes(" Also: ") ? 0.5 : 0);
  };
  return entries.map((entry) => [rank(entry), entry]).filter(([found]) => found).sort(([one], [other]) => other - one).map(([, entry]) => entry);
}

function createResult([path, page, id, title, text], query, words) {
  const item = document.createElement("li");
  const link = Object.assign(document.createElement("a"), { href: `${path}?q=${encodeURIComponent(query)}#${id}` });
  appendMarked(link, title, words);
  const shown = document.createElement("p");
  appendMarked(shown, excerpt(text, words), words);
  item.append(link, Object.assign(document.createElement("span"), { className: "muted small", textContent: ` ${page}` }), shown);
  return item;
}

async function search() {
  const query = byId("search").value.trim(), words = wordsOf(query);
  if (!index) byId("search-status").textContent = "Searching…";
  byId("results").hidden = !words.length;
  article.hidden = words.length > 0;
  const found = words.length ? find(await loadIndex(), words) : [];
  if (query !== byId("search").value.trim()) return; // more has been typed meanwhile
  byId("results-list").replaceChildren(...found.slice(0, 40).map((entry) => createResult(entry, query, words)));
  byId("search-status").textContent = found.length ? `${found.length} ${found.length === 1 ? "entry" : "entries"} found.` : `Nothing found for “${query}”. Try fewer or shorter words.`;
}

// Marks the words of the search that led here.
function markHits(words) {
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    if (pattern(words).test(texts.currentNode.data) && !texts.currentNode.parentElement.closest("pre, svg, label, button")) found.push(texts.currentNode);
  }
  for (const text of found) {
    const marked = document.createDocumentFragment();
    appendMarked(marked, text.data, words);
    text.replaceWith(marked);
  }
}

// Opens the element that the address names, or goes to the page that it has moved to.
async function showNamed() {
  const id = decodeURIComponent(location.hash.slice(1)), element = id && byId(id);
  if (!id) return;
  if (element) {
    for (let one = element; one; one = one.parentElement) if (one.localName === "details") one.open = true;
    element.scrollIntoView();
    return;
  }
  const moved = (await loadIndex()).find(([, , anchor]) => anchor === id);
  if (moved) location.replace(`${moved[0]}#${id}`);
}

// Marks the entry of the contents whose section is being read: the last one that begins in the upper part of the window.
function showPlace() {
  const links = [...document.querySelectorAll('.contents-list a[href^="#"]')];
  const passed = links.filter((link) => byId(link.hash.slice(1)).getBoundingClientRect().top < innerHeight / 3);
  const current = passed.at(-1) ?? links[0];
  for (const link of links) {
    if (link === current) link.setAttribute("aria-current", "location");
    else link.removeAttribute("aria-current");
  }
  if (current && wide.matches) keepVisible(current);
}

function keepVisible(link) {
  const box = document.querySelector(".contents"), { top, bottom } = link.getBoundingClientRect(), frame = box.getBoundingClientRect();
  if (top < frame.top || bottom > frame.bottom) box.scrollTop += top - frame.top - frame.height / 2;
}

byId("search").addEventListener("input", search);
byId("search-field").hidden = false;
const query = new URLSearchParams(location.search).get("q");
if (query) markHits(wordsOf(query));
addEventListener("hashchange", showNamed);
showNamed();
addEventListener("scroll", showPlace, { passive: true });
showPlace();
// On a phone, the list of contents would be several screens long.
const adjust = () => { byId("contents").open = wide.matches; };
wide.addEventListener("change", adjust);
adjust();
