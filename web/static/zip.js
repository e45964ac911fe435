// ZIP archives in memory: writes files that are compressed already, and reads small ones.

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit += 1) byte = byte & 1 ? 0xedb88320 ^ (byte >>> 1) : byte >>> 1;
  return byte;
});

function checksum(bytes) {
  let sum = -1;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

// A record of numbers: each as [value, bytes], little endian.
function record(...fields) {
  const bytes = [];
  for (const [value, size] of fields) for (let shift = 0; shift < size; shift += 1) bytes.push((value >>> (8 * shift)) & 255);
  return new Uint8Array(bytes);
}

// Names that occur several times get a number.
function distinct(names) {
  const used = new Set();
  return names.map((name) => {
    let one = name;
    for (let count = 2; used.has(one.toLowerCase()); count += 1) one = name.replace(/(\.[^.]*)?$/, ` (${count})$1`);
    used.add(one.toLowerCase());
    return one;
  });
}

// Resolves to the archive of `files`, each { name, blob }: less than 4 GB in all.
export async function createZip(files) {
  const parts = [], directory = [];
  let offset = 0;
  const names = distinct(files.map(({ name }) => name)).map((name) => new TextEncoder().encode(name));
  for (const [index, { blob }] of files.entries()) {
    const sum = checksum(new Uint8Array(await blob.arrayBuffer())), name = names[index];
    const common = [[20, 2], [0x800, 2], [0, 2], [0, 2], [33, 2], [sum, 4], [blob.size, 4], [blob.size, 4], [name.length, 2], [0, 2]]; // UTF-8, stored, 1980-01-01
    const header = record([0x04034b50, 4], ...common);
    directory.push(record([0x02014b50, 4], [20, 2], ...common, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]), name);
    parts.push(header, name, blob);
    offset += header.length + name.length + blob.size;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = record([0x06054b50, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [size, 4], [offset, 4], [0, 2]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

// Resolves to the contents of an archive, in the order of its directory.
export async function readZip(archive) {
  const view = new DataView(await archive.arrayBuffer());
  let end = view.byteLength - 22;
  while (end > 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  const contents = [];
  for (let place = view.getUint32(end + 16, true), left = view.getUint16(end + 10, true); left; left -= 1) {
    const isPacked = view.getUint16(place + 10, true) === 8, size = view.getUint32(place + 20, true), header = view.getUint32(place + 42, true);
    const start = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
    const packed = archive.slice(start, start + size);
    contents.push(isPacked ? await new Response(packed.stream().pipeThrough(new DecompressionStream("deflate-raw"))).blob() : packed);
    place += 46 + view.getUint16(place + 28, true) + view.getUint16(place + 30, true) + view.getUint16(place + 32, true);
  }
  return contents;
}
