// Takes the token from the fragment of the URL, which no server has seen, into the form.

function read() {
  const [, token] = /^#token=([0-9a-f]{64})$/i.exec(location.hash) ?? [];
  if (!token) return;
  document.getElementById("token").value = token;
  document.getElementById("token-field").hidden = true;
  history.replaceState(null, "", location.pathname);  // not into the history of the browser
}

read();
addEventListener("hashchange", read);
