// Colors in code: comments, texts, numbers, options and words of the languages of the samples.

const TOKENS = new RegExp([
  /(?<comment>(?<=^|\s)(?:#|\/\/)[^\n]*)/,
  /(?<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\])*'|`[^`]*`)/,
  /(?<option>(?<=^|\s)--?[A-Za-z][\w-]*)/,
  /(?<word>(?<![\w./-])(?:await|break|case|catch|class|const|curl|convertd|def|defer|do|done|else|except|export|false|for|from|func|function|if|import|in|let|new|null|package|print|return|throw|true|try|var|while|with)(?![\w./-]))/,
  /(?<number>(?<![\w./-])\d+(?:\.\d+)?\b)/,
].map((one) => one.source).join("|"), "g");

export function highlight(code) {
  const text = code.textContent, parts = [];
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const [kind] = Object.entries(found.groups).find(([, value]) => value !== undefined);
    parts.push(text.slice(end, found.index), Object.assign(document.createElement("span"), { className: kind, textContent: found[0] }));
    end = found.index + found[0].length;
  }
  code.replaceChildren(...parts, text.slice(end));
}
