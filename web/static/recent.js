// Results on a page as they come: of conversions that were begun before it was opened, or in another tab.

const INTERVAL = 3000; // milliseconds, while there are conversions without a result
const shown = () => document.getElementById("recent");
let due = sessionStorage.getItem("begun") ? 10 : 0; // the server may not know yet that the page of a conversion was left
sessionStorage.removeItem("begun");

async function refresh() {
  const response = await fetch(location.pathname + location.search).catch(() => null);
  const current = response?.ok && new DOMParser().parseFromString(await response.text(), "text/html").getElementById("recent");
  if (!current || current.innerHTML === shown().innerHTML) return;
  for (const { name } of shown().querySelectorAll("input:checked")) current.querySelector(`[name="${name}"]`)?.setAttribute("checked", "");
  shown().replaceWith(current);
}

setInterval(() => {
  if (!document.hidden && (due > 0 || shown().querySelector("[data-runs]"))) refresh();
  due -= 1;
}, INTERVAL);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
