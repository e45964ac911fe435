// The docs: search over all pages, contents that show where the reader is, and entries that open when they are named.

import { base } from "./base.js";

const byId = (id) => document.getElementById(id);
const IGNORED = new Set("a an and do for from how i in is my of on the to with".split(" "));
const article = document.querySelector("article");
const wide = matchMedia("(min-width: 62rem)");
let shown = ""; // the query whose results are shown

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

// The part of the page of results for the query that has them.
async function fetchResults(query) {
  const response = await fetch(`${base}/docs/search?q=${encodeURIComponent(query)}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.querySelectorAll("#search-status, #results-list");
}

// Shows what is found for what has been typed, instead of the page. A page of results is replaced by the next ones.
async function search() {
  const query = byId("search").value.trim();
  byId("results").hidden = !query;
  article.hidden = query !== "";
  if (!query || query === shown) return;
  const results = await fetchResults(query);
  if (query !== byId("search").value.trim()) return; // more has been typed meanwhile
  shown = query;
  byId("results").replaceChildren(...results);
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
  const links = [...await fetchResults(id)].flatMap((results) => [...results.querySelectorAll("a")]);
  const moved = links.find((link) => link.hash.slice(1) === id);
  if (moved) location.replace(`${moved.pathname}#${id}`);
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

let typing = 0;
byId("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, 150); // milliseconds: not for each letter of a word
});
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
