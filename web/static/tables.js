// On narrow screens, where each row of a table is a block, shows a few rows at a time, with buttons for the others.

import { _ } from "./texts.js";

const ROWS = 5;
const narrow = matchMedia("(max-width: 46rem)");

function paginate(table) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length <= ROWS) return;
  let first = 0;
  const pages = document.createElement("p");
  pages.className = "row pages";
  const status = document.createElement("span");
  status.className = "muted small";
  status.setAttribute("role", "status");
  const button = (label, step) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "quiet small";
    made.textContent = label;
    made.addEventListener("click", () => { first += step; show(); });
    return made;
  };
  const previous = button(_("Previous"), -ROWS), next = button(_("Next"), ROWS);
  function show() {
    const end = Math.min(first + ROWS, rows.length);
    rows.forEach((row, index) => { row.hidden = narrow.matches && !(first <= index && index < end); });
    pages.hidden = !narrow.matches;
    previous.disabled = first === 0;
    next.disabled = end === rows.length;
    status.textContent = _("{first} to {last} of {count}", { first: first + 1, last: end, count: rows.length });
  }
  pages.append(previous, status, next);
  table.parentElement.after(pages);
  narrow.addEventListener("change", show);
  show();
}

document.querySelectorAll("table.stacked").forEach(paginate);
