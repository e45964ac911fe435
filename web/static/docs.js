// Searches the page.

const part = (id) => document.getElementById(id);
const sections = [...document.querySelectorAll("article > section[id], .endpoint")];
const texts = new Map(sections.map((section) => [section, section.textContent.toLowerCase()]));

function search() {
  const words = part("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (section) => words.every((word) => texts.get(section).includes(word));
  let shown = 0;
  for (const section of sections) {
    section.hidden = !fits(section);
    shown += !section.hidden;
  }
  for (const group of document.querySelectorAll("article > section:not([id])")) {
    group.hidden = ![...group.querySelectorAll(".endpoint")].some((one) => !one.hidden);
  }
  for (const link of document.querySelectorAll(".contents a")) {
    link.parentElement.hidden = part(link.hash.slice(1))?.hidden ?? false;
  }
  part("found").textContent = words.length ? `${shown} sections` : "";
}

part("search").addEventListener("input", search);
part("search-field").hidden = false;
