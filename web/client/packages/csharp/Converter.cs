using System;
using System.Collections.Generic;
using System.IO;
using System.Net.Http;
using System.Text.Json;
using System.Text.Json.Nodes;
using System.Threading.Tasks;

namespace Convertd
{
    /// <summary>An error of the API, with its message.</summary>
    public sealed class ConvertdError : Exception
    {
        internal ConvertdError(int status, JsonObject? error, string code, string message)
            : base((string?)error?["message"] ?? message)
        {
            Status = status;
            Code = (string?)error?["code"] ?? code;
        }

        public int Status { get; }

        public string Code { get; }
    }

    /// <summary>Converts files: uploads them, repeats what may succeed later, and waits for jobs.</summary>
    public sealed class Converter
    {
        private const int Attempts = 5;
        private const int MaxWait = 60; // seconds

        private static readonly HttpClient Http = new HttpClient { Timeout = TimeSpan.FromMinutes(2) };

        private readonly string _url;
        private readonly string _apiKey;

        /// <summary>The URL is that of the API, such as https://convertd.example/api/v1.</summary>
        public Converter(string url, string apiKey)
        {
            _url = url;
            _apiKey = apiKey;
        }

        /// <summary>Returns the bytes of the result. All attempts are charged once. Throws ConvertdError.</summary>
        /// <remarks>Options that are no strings are sent as JSON. In the background, the conversion is a job.</remarks>
        public async Task<byte[]> ConvertAsync(
            string path, string format, IReadOnlyDictionary<string, object> options, bool background = false)
        {
            byte[] file = await File.ReadAllBytesAsync(path);
            string key = Guid.NewGuid().ToString();
            HttpContent Form()
            {
                var form = new MultipartFormDataContent();
                form.Add(new ByteArrayContent(file), "file", Path.GetFileName(path));
                form.Add(new StringContent(format), "output_format");
                foreach ((string name, object value) in options)
                {
                    form.Add(new StringContent(value as string ?? JsonSerializer.Serialize(value)), name);
                }
                form.Headers.Add("Idempotency-Key", key);
                return form;
            }
            (int status, byte[] body) = await SendAsync("/convert", background ? "respond-async" : null, Form);
            if (status != 202)
            {
                return body;
            }
            JsonNode job = JsonNode.Parse(body)!["data"]!;
            while ((string?)job["status"] is "queued" or "processing")
            {
                (_, body) = await SendAsync("/jobs/" + (string?)job["job_id"], "wait=50");
                job = JsonNode.Parse(body)!["data"]!;
            }
            if ((string?)job["status"] != "completed")
            {
                string state = (string?)job["status"] ?? "unknown";
                throw new ConvertdError(200, job["error"] as JsonObject, state, "The job was cancelled.");
            }
            return (await SendAsync("/files/" + (string?)job["result"]!["file_id"] + "/download")).Body;
        }

        /// <summary>Sends a request, again if that may help: after as long as the server asks for, or 1, 2, 4 s.</summary>
        private async Task<(int Status, byte[] Body)> SendAsync(
            string path, string? prefer = null, Func<HttpContent>? makeForm = null)
        {
            for (int attempt = 1; ; attempt++)
            {
                double seconds = Math.Pow(2, attempt - 1) * (0.5 + Random.Shared.NextDouble() / 2);
                try
                {
                    HttpMethod method = makeForm == null ? HttpMethod.Get : HttpMethod.Post;
                    using var request = new HttpRequestMessage(method, _url + path) { Content = makeForm?.Invoke() };
                    request.Headers.Add("Authorization", "Bearer " + _apiKey);
                    if (prefer != null)
                    {
                        request.Headers.Add("Prefer", prefer);
                    }
                    using HttpResponseMessage response = await Http.SendAsync(request);
                    byte[] body = await response.Content.ReadAsByteArrayAsync();
                    int status = (int)response.StatusCode;
                    if (response.IsSuccessStatusCode)
                    {
                        return (status, body);
                    }
                    double asked = response.Headers.RetryAfter?.Delta?.TotalSeconds ?? 0;
                    JsonObject? error = ErrorOf(body);
                    bool retryable = (bool?)error?["retryable"] ?? status is 429 or 502 or 503 or 504;
                    if (attempt >= Attempts || !retryable || asked > MaxWait)
                    {
                        throw new ConvertdError(status, error, "unknown", "Status " + status);
                    }
                    seconds = Math.Max(seconds, asked);
                }
                catch (Exception lost) when (
                    attempt < Attempts && lost is HttpRequestException or TaskCanceledException)
                {
                    // The connection was lost, or took longer than the client waits.
                }
                await Task.Delay(TimeSpan.FromSeconds(seconds));
            }
        }

        private static JsonObject? ErrorOf(byte[] body)
        {
            try
            {
                return (JsonNode.Parse(body) as JsonObject)?["error"] as JsonObject;
            }
            catch (JsonException)
            {
                return null; // the body of another server
            }
        }
    }
}
