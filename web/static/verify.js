import { base } from "./base.js";
import { offerKey } from "./new_key.js";
import { _ } from "./texts.js";

// Exchanges the token in the URL fragment for the API key when the button is clicked.

const byId = (id) => document.getElementById(id);
const setStatus = (text) => { byId("status").textContent = text; };
const fragment = /^#token=([0-9a-f]{64})$/i.exec(location.hash);

function showKey(data) {
  byId("intro").hidden = byId("show-key").parentElement.hidden = true;
  byId("key-section").hidden = byId("next").hidden = false;
  byId("key").value = data.api_key;
  byId("account").textContent = _("{name} ({email}) has {count} credits.", { name: data.name, email: data.email, count: data.credits_remaining });
  byId("message").textContent = data.message;
  const url = byId("key-section").dataset.url;
  byId("test").textContent = `export CONVERTD_API_KEY=${data.api_key}\ncurl -H "Authorization: Bearer $CONVERTD_API_KEY" \\\n  ${url}/account`;
  byId("sign-in").value = data.api_key;
  offerKey();
  setStatus("");
}

async function fetchKey() {
  byId("show-key").disabled = true;
  setStatus(_("Loading…"));
  try {
    const response = await fetch(`${base}/api/v1/verify?token=${fragment[1]}`,
      { headers: { Accept: "application/json" }, cache: "no-store", referrerPolicy: "no-referrer" });
    const { data, error } = await response.json();
    // The token has been used or is invalid: remove it from the address bar and the history.
    if (response.ok || response.status === 404) history.replaceState(null, "", location.pathname);
    if (response.ok) return showKey(data);
    if (response.status === 404) {
      byId("new-email").hidden = false;
      byId("intro").hidden = byId("show-key").parentElement.hidden = true;
      return setStatus(_("This link has been used or has expired. Links are valid for 24 hours."));
    }
    setStatus(error.message);
  } catch {
    setStatus(_("The server cannot be reached. Try again."));
  }
  byId("show-key").disabled = false;
}

byId("show-key").addEventListener("click", fetchKey);
addEventListener("hashchange", () => location.reload());
if (!fragment) {
  byId("intro").textContent = _("To see your API key, open the link in the email that we sent you.");
  byId("show-key").parentElement.hidden = true;
  byId("new-email").hidden = false;
}
