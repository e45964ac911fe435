// Search in the table of conversions, for example "heic" or "heic to webp".

const byId = (id) => document.getElementById(id);
const table = byId("matrix");
const columns = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
const rows = [...table.tBodies[0].rows];
const aliases = { jpg: "jpeg", tif: "tiff", heif: "heic" };

function search() {
  const words = byId("search").value.toLowerCase().split(/[^a-z0-9]+|\bto\b/).filter(Boolean);
  const [source = "", target = ""] = words.map((word) => aliases[word] ?? word);
  const isInput = rows.some((row) => row.cells[0].textContent.includes(source));
  const isOutput = columns.slice(1).some((column) => column.includes(source));
  const highlighted = target || (isInput ? "" : source);
  let matches = 0;
  for (const row of rows) {
    row.hidden = !(row.cells[0].textContent.includes(source) || (!target && isOutput));
    matches += !row.hidden;
    [...row.cells].forEach((cell, index) => {
      cell.classList.toggle("highlighted", index > 0 && highlighted !== "" && columns[index].startsWith(highlighted));
    });
  }
  byId("no-match").hidden = matches > 0;
  byId("search-status").textContent = source ? `${matches} input formats found` : "";
}

byId("search").addEventListener("input", search);
byId("search-field").hidden = false;
