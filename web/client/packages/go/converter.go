package convertd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"mime/multipart"
	"net/http"
	"strconv"
	"time"
)

// Converter converts files: it uploads them, repeats what may succeed later, and waits for jobs.
type Converter struct {
	URL        string // of the API, such as https://convertd.example/api/v1
	APIKey     string
	Background bool // in jobs: for files that take longer than one request may
	Attempts   int  // how often a request is sent at most; 0 is 5
}

// ConvertdError is an error of the API, with its message.
type ConvertdError struct {
	Status        int
	Code, Message string
	Retryable     bool
}

func (e *ConvertdError) Error() string { return e.Message }

// Convert returns the bytes of the result. All attempts are charged once. Options that are no strings are sent as JSON.
// Errors of the API are a *ConvertdError.
func (c Converter) Convert(
	ctx context.Context, file io.Reader, name, format string, options map[string]any,
) ([]byte, error) {
	form := &bytes.Buffer{} // to which writing does not fail
	writer := multipart.NewWriter(form)
	part, _ := writer.CreateFormFile("file", name)
	if _, err := io.Copy(part, file); err != nil {
		return nil, err
	}
	writer.WriteField("output_format", format)
	for option, value := range options {
		text, isText := value.(string)
		if !isText {
			encoded, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			text = string(encoded)
		}
		writer.WriteField(option, text)
	}
	boundary := writer.Boundary() // random, so it is also a key
	writer.Close()
	headers := map[string]string{"Content-Type": writer.FormDataContentType(), "Idempotency-Key": boundary}
	if c.Background {
		headers["Prefer"] = "respond-async"
	}
	status, body, err := c.send(ctx, http.MethodPost, "/convert", headers, form.Bytes())
	if err != nil || status != http.StatusAccepted {
		return body, err
	}
	for {
		var job struct {
			Data struct {
				JobID  string `json:"job_id"`
				Status string
				Result struct {
					FileID string `json:"file_id"`
				}
				Error *ConvertdError
			}
		}
		if err = json.Unmarshal(body, &job); err != nil {
			return nil, err
		}
		if job.Data.Status == "completed" {
			_, body, err = c.send(ctx, http.MethodGet, "/files/"+job.Data.Result.FileID+"/download", nil, nil)
			return body, err
		}
		if job.Data.Error != nil {
			job.Data.Error.Status = http.StatusOK
			return nil, job.Data.Error
		}
		if job.Data.Status == "cancelled" {
			return nil, &ConvertdError{http.StatusOK, job.Data.Status, "The job was cancelled.", false}
		}
		wait := map[string]string{"Prefer": "wait=50"}
		if _, body, err = c.send(ctx, http.MethodGet, "/jobs/"+job.Data.JobID, wait, nil); err != nil {
			return nil, err
		}
	}
}

// send sends a request, again if that may help: after as long as the server asks for, or else a second, two, four …
func (c Converter) send(
	ctx context.Context, method, path string, headers map[string]string, content []byte,
) (int, []byte, error) {
	for attempt := 0; ; attempt++ {
		request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(content))
		if err != nil {
			return 0, nil, err
		}
		request.Header.Set("Authorization", "Bearer "+c.APIKey)
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		seconds := float64(int(1)<<attempt) * (0.5 + rand.Float64()/2)
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			var body []byte
			body, err = io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode < 300 {
				return response.StatusCode, body, nil
			}
			asked, _ := strconv.ParseFloat(response.Header.Get("Retry-After"), 64)
			refused := errorOf(response.StatusCode, body)
			if err == nil && (!refused.Retryable || asked > 60) {
				return 0, nil, refused
			}
			if err == nil {
				err = refused
			}
			if asked > seconds {
				seconds = asked
			}
		}
		if attempt+1 == c.Attempts || attempt == 4 && c.Attempts == 0 {
			return 0, nil, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		}
	}
}

func errorOf(status int, body []byte) *ConvertdError {
	temporary := status == http.StatusTooManyRequests || http.StatusBadGateway <= status && status <= http.StatusGatewayTimeout
	read := struct{ Error ConvertdError }{ConvertdError{status, "unknown", fmt.Sprintf("Status %d", status), temporary}}
	json.Unmarshal(body, &read) // the body of another server is no JSON
	return &read.Error
}
