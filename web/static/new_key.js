// Buttons beside an API key that is shown once: to copy it, and to save it as a file of environment variables.

import { _ } from "./texts.js";

const byId = (id) => document.getElementById(id);

export function offerKey() {
  const key = byId("key");
  byId("env").href = URL.createObjectURL(new Blob([`CONVERTD_API_KEY=${key.value}\n`], { type: "text/plain" }));
  byId("copy").hidden = byId("env").hidden = false;
  key.focus();
  key.select();
}

byId("copy").addEventListener("click", async () => {
  byId("key").select();
  try {
    await navigator.clipboard.writeText(byId("key").value);
    byId("copied").textContent = _("Copied.");
  } catch {
    byId("copied").textContent = _("The key is selected. Copy it with your keyboard.");
  }
});
if (byId("key").value) offerKey();
