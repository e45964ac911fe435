// Code samples: a copy button and colors for each, and the selected language is remembered.

import { highlight } from "./highlight.js";
import { _ } from "./texts.js";

const LANGUAGE = "convertd_language";

function select(option) {
  option.checked = true;
  localStorage.setItem(LANGUAGE, option.value);
}

for (const option of document.querySelectorAll('[name="language"]')) {
  if (option.value === localStorage.getItem(LANGUAGE)) select(option);
  option.addEventListener("change", () => select(option));
}

for (const sample of document.querySelectorAll("pre")) {
  highlight(sample.querySelector("code"));
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: _("Copy"), className: "copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(sample.querySelector("code").textContent);
    button.textContent = _("Copied");
    setTimeout(() => { button.textContent = _("Copy"); }, 1500);
  });
  if (navigator.clipboard) sample.prepend(button);
}
