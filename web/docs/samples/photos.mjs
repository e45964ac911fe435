import { randomUUID } from "node:crypto";
import { openAsBlob } from "node:fs";
import { readdir, writeFile } from "node:fs/promises";
import { setTimeout } from "node:timers/promises";

const waits = [1, 2, 4, 8, 16, 0]; // seconds after each attempt

// Writes a JPEG beside the photo. What fails for a while is repeated under the same idempotency key,
// so that it is charged once.
async function convert(photo) {
  const headers = { Authorization: `Bearer ${process.env.CONVERTD_API_KEY}`, "Idempotency-Key": randomUUID() };
  let message;
  for (const wait of waits) {
    const form = new FormData();
    form.append("file", await openAsBlob(photo), "photo.heic");
    form.append("output_format", "jpeg");
    try {
      const signal = AbortSignal.timeout(300_000); // milliseconds
      const response = await fetch("{url}/convert", { method: "POST", headers, body: form, signal });
      if (response.ok) {
        await writeFile(photo.replace(/\.heic$/i, ".jpg"), Buffer.from(await response.arrayBuffer()));
        return;
      }
      const { error } = await response.json();
      message = `${error.code}: ${error.message} (${error.request_id})`;
      if (!error.retryable) break;
      await setTimeout(Number(response.headers.get("Retry-After") ?? wait) * 1000);
    } catch (error) {
      message = error.message; // no connection, or a proxy responds
      await setTimeout(wait * 1000);
    }
  }
  console.error(`${photo}: ${message}`);
  process.exitCode = 1;
}

const names = await readdir("photos", { recursive: true });
const photos = names.filter((name) => /\.heic$/i.test(name)).map((name) => `photos/${name}`);
const work = async () => {
  while (photos.length) await convert(photos.pop());
};
await Promise.all([work(), work(), work(), work()]);
