// On narrow screens, where each row of a table is a block, shows a few rows at a time, with buttons for the others.

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
  const previous = button("Previous", -ROWS), next = button("Next", ROWS);
  function show() {
    const end = Math.min(first + ROWS, rows.length);
    rows.forEach((row, index) => { row.hidden = narrow.matches && !(first <= index && index < end); });
    pages.hidden = !narrow.matches;
    previous.disabled = first === 0;
    next.disabled = end === rows.length;
    status.textContent = `${first + 1} to ${end} of ${rows.length}`;
  }
  pages.append(previous, status, next);
  table.parentElement.after(pages);
  narrow.addEventListener("change", show);
  show();
}

document.querySelectorAll("table.stacked").forEach(paginate);
