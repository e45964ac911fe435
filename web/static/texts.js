// The texts of scripts in the language of the page, which has the translations, and the forms of its numbers.

const { lang } = document.documentElement;
const translations = JSON.parse(document.body.dataset.texts ?? "{}");
const rules = new Intl.PluralRules(lang), numbers = new Intl.NumberFormat(lang);

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => typeof values[name] === "number" ? numbers.format(values[name]) : values[name]);
}

// The translation of a text, with values where it has their names in braces.
export const _ = (text, values = {}) => fill(translations[text] ?? text, values);

// The translation of the text that fits a count, which its `{count}` is.
export function _n(one, several, count, values = {}) {
  const forms = translations[one] ?? [one, several];
  return fill(forms[rules.select(count) === "one" ? 0 : 1], { count, ...values });
}

export const formatList = (names) => new Intl.ListFormat(lang).format(names);
const decimal = (value, digits) => value.toLocaleString(lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const formatPercent = (share) => _("{number}%", { number: decimal(100 * share, 1).replace(/\D0$/, "") });

export function formatSize(size) {
  if (size < 1024) return _("{number} B", { number: size });
  return size < 1048576 ? _("{number} kB", { number: decimal(size / 1024, 1) }) : _("{number} MB", { number: decimal(size / 1048576, 2) });
}
