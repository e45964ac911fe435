// Programs to copy: a button for each, and the language that was chosen last.

const LANGUAGE = "convertd_language";

function choose(choice) {
  choice.checked = true;
  localStorage.setItem(LANGUAGE, choice.value);
}

for (const choice of document.querySelectorAll('[name="language"]')) {
  if (choice.value === localStorage.getItem(LANGUAGE)) choose(choice);
  choice.addEventListener("change", () => choose(choice));
}

for (const sample of document.querySelectorAll("pre")) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy", className: "copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(sample.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  if (navigator.clipboard) sample.prepend(button);
}
