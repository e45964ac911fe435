export * as api from './api/index.js';
export type * from './api/types.gen.js';
export { client } from './api/client.gen.js';
export { convert, ConvertdError, type Settings } from './convert.js';
