import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from(process.env.WEBHOOK_SECRET.replace("whsec_", ""), "base64");

function verify(headers, body) {
  const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`;
  const expected = Buffer.from("v1," + createHmac("sha256", key).update(signed).update(body).digest("base64"));
  const signatures = (headers["webhook-signature"] ?? "").split(" ").map((one) => Buffer.from(one));
  const genuine = signatures.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  const age = Math.abs(Date.now() / 1000 - Number(headers["webhook-timestamp"]));
  if (!genuine || !(age < 300)) throw new Error("This is no message of convertd.");
  return JSON.parse(body);
}

createServer(async (request, response) => {
  const body = Buffer.concat(await request.toArray());
  try {
    const { type, data } = verify(request.headers, body);
    console.log(request.headers["webhook-id"], type, JSON.stringify(data));
    response.writeHead(204).end();
  } catch {
    response.writeHead(400).end();
  }
}).listen(Number(process.env.PORT ?? 8080));
