// The path of the site: pages and the API are below it. It is empty unless a proxy has the site below a path.

export const base = new URL("..", import.meta.url).pathname.slice(0, -1);

// An element with these properties.
export const create = (tag, properties) => Object.assign(document.createElement(tag), properties);
