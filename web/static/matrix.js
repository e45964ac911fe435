// Finds formats in the table of conversions: "heic", or "heic to webp".

const part = (id) => document.getElementById(id);
const table = part("matrix");
const columns = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
const rows = [...table.tBodies[0].rows];
const aliases = { jpg: "jpeg", tif: "tiff", heif: "heic" };

function search() {
  const words = part("search").value.toLowerCase().split(/[^a-z0-9]+|\bto\b/).filter(Boolean);
  const [source = "", target = ""] = words.map((word) => aliases[word] ?? word);
  let shown = 0;
  for (const row of rows) {
    const name = row.cells[0].textContent;
    row.hidden = !(name.includes(source) || (!target && columns.slice(1).some((one) => one.includes(source))));
    shown += !row.hidden;
    [...row.cells].forEach((cell, index) => {
      const wanted = target || (rows.some((one) => one.cells[0].textContent.includes(source)) ? "" : source);
      cell.classList.toggle("lit", index > 0 && wanted !== "" && columns[index].startsWith(wanted));
    });
  }
  part("none").hidden = shown > 0;
  part("found").textContent = source ? `${shown} input formats` : "";
}

part("search").addEventListener("input", search);
part("search-field").hidden = false;
