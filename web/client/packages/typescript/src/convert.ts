import type { ConvertOptions, Job } from './api/types.gen.js';

/** The server, and how requests to it are sent. */
export interface Settings {
  apiKey: string;
  /** Of the API, such as https://convertd.example/api/v1. */
  url: string;
  /** Convert in the background, and wait for the job: for files that take longer than one request may. */
  background?: boolean;
  /** How often a request is sent at most. Default: 5. */
  attempts?: number;
}

/** An error of the API, with its message. */
export class ConvertdError extends Error {
  override name = 'ConvertdError';
  constructor(
    message: string,
    readonly code: string,
    readonly status: number,
    readonly requestId?: string,
  ) {
    super(message);
  }
}

const MAX_WAIT = 60; // seconds

/** Converts a file. Returns the bytes of the result. Throws ConvertdError. All attempts are charged once. */
export async function convert(
  file: Blob,
  outputFormat: string,
  options: ConvertOptions,
  settings: Settings,
): Promise<Uint8Array> {
  const form = new FormData();
  form.append('file', file); // the name of a File goes with it
  for (const [name, value] of Object.entries({ ...options, output_format: outputFormat })) {
    if (value instanceof Blob) form.append(name, value);
    else if (value != null) form.append(name, typeof value === 'object' ? JSON.stringify(value) : String(value));
  }
  const headers: Record<string, string> = { 'Idempotency-Key': crypto.randomUUID() };
  if (settings.background) headers.Prefer = 'respond-async';
  const response = await send('/convert', settings, { method: 'POST', body: form, headers });
  if (response.status !== 202) return bytes(response);

  let job = await jobOf(response);
  while (job.status === 'queued' || job.status === 'processing')
    job = await jobOf(await send(`/jobs/${job.job_id}`, settings, { headers: { Prefer: 'wait=50' } }));
  if (job.status !== 'completed' || !job.result)
    throw new ConvertdError(job.error?.message ?? 'The job was cancelled.', job.error?.code ?? job.status, 200);
  return bytes(await send(`/files/${job.result.file_id}/download`, settings, {}));
}

async function bytes(response: Response): Promise<Uint8Array> {
  return new Uint8Array(await response.arrayBuffer());
}

async function jobOf(response: Response): Promise<Job> {
  return (await response.json()).data;
}

/** Sends a request, again if that may help: after as long as the server asks for, or else a second, two, four … */
async function send(path: string, settings: Settings, init: RequestInit): Promise<Response> {
  const headers = { ...init.headers, Authorization: `Bearer ${settings.apiKey}` };
  for (let attempt = 1; ; attempt++) {
    const last = attempt >= (settings.attempts ?? 5);
    let seconds = 2 ** (attempt - 1) * (0.5 + Math.random() / 2);
    try {
      const response = await fetch(settings.url + path, { ...init, headers });
      if (response.ok) return new Response(await response.arrayBuffer(), response); // read where losses are repeated
      const error = (await response.json().catch(() => ({}))).error ?? {};
      const asked = Number(response.headers.get('Retry-After')) || 0; // of other servers, it can be a date
      const retryable = error.retryable ?? [429, 502, 503, 504].includes(response.status);
      if (last || !retryable || asked > MAX_WAIT)
        throw new ConvertdError(
          error.message ?? `Status ${response.status}`,
          error.code ?? 'unknown',
          response.status,
          error.request_id,
        );
      seconds = Math.max(seconds, asked);
    } catch (error) {
      if (last || error instanceof ConvertdError) throw error; // else the connection was lost
    }
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}
