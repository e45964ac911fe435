// Full-text search over the sections of the docs page.

const byId = (id) => document.getElementById(id);
const sections = [...document.querySelectorAll("article > section[id], .endpoint")];
const texts = new Map(sections.map((section) => [section, section.textContent.toLowerCase()]));

function search() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let matches = 0;
  for (const section of sections) {
    section.hidden = !words.every((word) => texts.get(section).includes(word));
    matches += !section.hidden;
  }
  for (const group of document.querySelectorAll("article > section:not([id])")) {
    group.hidden = ![...group.querySelectorAll(".endpoint")].some((endpoint) => !endpoint.hidden);
  }
  for (const link of document.querySelectorAll(".contents a")) {
    link.parentElement.hidden = byId(link.hash.slice(1))?.hidden ?? false;
  }
  byId("search-status").textContent = words.length ? `${matches} sections found` : "";
}

byId("search").addEventListener("input", search);
byId("search-field").hidden = false;
