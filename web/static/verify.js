// Exchanges the token of the link, which is in the fragment, for the key, when told to.

const part = (id) => document.getElementById(id);
const say = (text) => { part("status").textContent = text; };
const found = /^#token=([0-9a-f]{64})$/i.exec(location.hash);

function show(data) {
  part("intro").hidden = part("reveal").hidden = true;
  part("shown").hidden = part("next").hidden = false;
  part("key").value = data.api_key;
  part("account").textContent = `${data.name} (${data.email}) has ${data.credits_remaining} credits.`;
  part("env").href = URL.createObjectURL(new Blob([`CONVERTD_KEY=${data.api_key}\n`], { type: "text/plain" }));
  const url = part("shown").dataset.url;
  part("test").textContent = `export CONVERTD_KEY=${data.api_key}\ncurl -H "Authorization: Bearer $CONVERTD_KEY" ${url}/account`;
  part("try").addEventListener("click", () => sessionStorage.setItem("convertd_key", data.api_key));
  part("key").focus();
  part("key").select();
  say("");
}

async function reveal() {
  part("reveal").disabled = true;
  say("One moment…");
  try {
    const answer = await fetch(`/api/v1/verify?token=${found[1]}`,
      { headers: { Accept: "application/json" }, cache: "no-store", referrerPolicy: "no-referrer" });
    const { data, error } = await answer.json();
    if (answer.ok || answer.status === 404) history.replaceState(null, "", location.pathname);
    if (answer.ok) return show(data);
    if (answer.status === 404) {
      part("again").hidden = false;
      part("intro").hidden = part("reveal").hidden = true;
      return say("This link has been used, or is older than 24 hours.");
    }
    say(error.message);
  } catch {
    say("The service could not be reached. Try again.");
  }
  part("reveal").disabled = false;
}

async function copy() {
  part("key").select();
  try {
    await navigator.clipboard.writeText(part("key").value);
    say("Copied.");
  } catch {
    say("The key is selected: copy it with your keyboard.");
  }
}

part("reveal").addEventListener("click", reveal);
part("copy").addEventListener("click", copy);
addEventListener("hashchange", () => location.reload());
if (!found) {
  part("intro").textContent = "Open this page with the link in the letter that we sent you.";
  part("reveal").hidden = true;
  part("again").hidden = false;
}
